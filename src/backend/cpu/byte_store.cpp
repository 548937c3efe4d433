#include "backend/cpu/byte_store.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/division.h"

namespace ulpscope::cpu {
namespace {

std::vector<std::int64_t> in_panels(std::int64_t groups, std::int64_t columns, std::int64_t panel) {
  std::vector<std::int64_t> result;
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t c = 0; c < round_up(columns, panel); ++c) result.push_back(c < columns ? g * columns + c : -1);
  return result;
}

/// A scale that gives the same bytes, and never NaN: times 0, infinity does; NaN counts as 0.
float finite(float scale) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return std::isnan(scale) ? 0.0f : std::clamp(scale, -kMost, kMost);
}

/// Follows a program from its sums on: a scale, an offset, then bounds, each if it is there.
class SumsReader {
 public:
  SumsReader(const ProgramForm& program, std::size_t sums, const std::vector<Tensor>& constants)
      : program_(program), constants_(constants), at_(program.inputs[sums].target) {}

  std::optional<Requantization> read() {
    for (const ProgramForm::Step& step : program_.steps)
      if (!follow(step)) return std::nullopt;
    const ProgramForm::Output& output = program_.outputs[0];
    if (output.source != at_ || !output.is_bytes() || !(output.integers->by.scale > 0)) return std::nullopt;
    result_.type = output.integers->by.is_unsigned() ? DataType::kUInt8 : DataType::kInt8;
    result_.zero = output.integers->zero;
    result_.step = output.integers->by.scale;
    if (result_.scales.empty()) result_.scales = every(1);
    return std::move(result_);
  }

 private:
  std::vector<float> every(float value) const {
    return std::vector<float>(static_cast<std::size_t>(program_.domain.back()), value);
  }

  /// One value per channel that a register has; empty: it has others, or such as are not finite.
  std::vector<float> by_channel(Register r) const {
    const ProgramForm::RegisterInfo& info = program_.registers[r];
    std::vector<float> values;
    if (info.kind == ProgramForm::Kind::kConstant) {
      values = every(info.value);
    } else if (info.input >= 0) {
      const ProgramForm::Input& input = program_.inputs[static_cast<std::size_t>(info.input)];
      const Tensor& constant = constants_[static_cast<std::size_t>(info.input)];
      const auto outer = std::span(input.strides).first(input.strides.size() - 1);
      if (!constant || constant.size() != program_.domain.back() || input.strides.back() != 1 ||
          input.rounding != Rounding::kNone || std::ranges::any_of(outer, [](auto stride) { return stride != 0; }))
        return {};
      const Tensor held = constant.in_memory();
      values.assign(held.data<float>(), held.data<float>() + held.size());
    }
    return std::ranges::all_of(values, [](float v) { return std::isfinite(v); }) ? values : std::vector<float>();
  }

  bool bound(float least, float most) {
    if (!(least <= most)) return false;
    is_bounded_ = true;
    result_.least = std::clamp(result_.least, least, most);
    result_.most = std::clamp(result_.most, least, most);
    return true;
  }

  bool follow(const ProgramForm::Step& step) {
    if (step.a != at_ && step.b != at_) return false;
    const Register other = step.a == at_ ? step.b : step.a;
    at_ = step.target;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    switch (step.instruction) {
      case Instruction::kCopy:
        return true;
      case Instruction::kMul:
        if (!result_.scales.empty() || !result_.offset.empty() || is_bounded_) return false;
        return !(result_.scales = by_channel(other)).empty();
      case Instruction::kAdd:
        if (!result_.offset.empty() || is_bounded_) return false;
        return !(result_.offset = by_channel(other)).empty();
      case Instruction::kRelu:
        return bound(0, kInfinity);
      case Instruction::kClip:
        return bound(step.p, step.q);
      default:
        return false;
    }
  }

  const ProgramForm& program_;
  const std::vector<Tensor>& constants_;
  Register at_;  ///< What has been read so far.
  bool is_bounded_ = false;
  Requantization result_;
};

}  // namespace

std::optional<Requantization> bytes_of_sums(const ProgramForm& program, std::size_t sums,
                                            const std::vector<Tensor>& constants) {
  if (program.row_dims > 0 || program.domain.empty() || program.outputs.size() != 1 || sums >= program.inputs.size() ||
      program.inputs[sums].rounding != Rounding::kNone || !program.inputs[sums].is_dense(program.domain))
    return std::nullopt;
  return SumsReader(program, sums, constants).read();
}

ByteStore::ByteStore(const Requantization& by, const std::vector<std::int64_t>& channels)
    : scales_(channels.size()), offset_(channels.size()), bias_(channels.size()) {
  for (std::size_t i = 0; i < channels.size(); ++i) {
    if (channels[i] < 0) continue;
    const auto c = static_cast<std::size_t>(channels[i]);
    scales_[i] = finite(by.scales[c]);
    if (!by.offset.empty()) offset_[i] = by.offset[c];
    if (!by.bias.empty()) bias_[i] = by.bias[c];
  }
  form_.zero = by.zero;
  form_.step = by.step;
  form_.least = by.low();
  form_.most = by.high();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (by.offset.empty() && by.step == 1 && by.least == -kInfinity && by.most == kInfinity) {
    form_.quotient = ByteForm::Quotient::kNone;
    form_.low = by.low();
    form_.high = by.high();
    return;
  }
  form_.low = by.least;
  form_.high = by.most;
  const Inverse inverse = inverse_of(by.step, by.low(), by.high());
  form_.quotient = inverse.exists ? ByteForm::Quotient::kInverse : ByteForm::Quotient::kDivision;
  form_.r = inverse.r;
  form_.s = inverse.s;
  if (!inverse.exists) return;
  form_.low = std::clamp(by.least, by.low() * by.step, by.high() * by.step);
  form_.high = std::clamp(by.most, by.low() * by.step, by.high() * by.step);
}

ByteStore::ByteStore(const Requantization& by, std::int64_t groups, std::int64_t columns, std::int64_t panel)
    : ByteStore(by, in_panels(groups, columns, panel)) {}

ByteForm ByteStore::from(std::int64_t place) const {
  ByteForm form = form_;
  form.scales = scales_.data() + place;
  form.bias = offset_.data() + place;
  return form;
}

void ByteStore::add_bias(std::int64_t place, std::vector<std::int32_t>& start) const {
  for (std::size_t i = 0; i < start.size(); ++i)
    start[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(start[i]) +
                                         static_cast<std::uint32_t>(bias_[static_cast<std::size_t>(place) + i]));
}

}  // namespace ulpscope::cpu
