// What cuBLASLt and cuDNN compute, and what they expect of their operands.
#include <algorithm>
#include <cmath>
#include <set>

#include "backend/fake_device.h"
#include "backend/strides.h"

namespace ulpscope::cuda::fake {
namespace {

float tf32_if(bool tf32, double value) {
  const auto x = static_cast<float>(value);
  return tf32 ? round_to_tf32(x) : x;
}

}  // namespace

/// Every index of the program's domain finds its sum where the product puts that of its row.
void FakePlan::expect_rows(const FusedProductSpec& spec) const {
  const Shape& domain = spec.program.domain;
  const std::size_t rows = domain.size() - 1;
  expect(spec.row_strides.size() == rows && spec.program.inputs[0].strides.size() == rows + 1, "other dimensions");
  std::vector<std::int64_t> at(domain.size(), 0);
  std::set<std::int64_t> seen;
  for (bool more = num_elements(domain) > 0; more;) {
    std::int64_t row = 0, element = 0;
    for (std::size_t d = 0; d < rows; ++d) row += at[d] * spec.row_strides[d];
    for (std::size_t d = 0; d <= rows; ++d) element += at[d] * spec.program.inputs[0].strides[d];
    expect(row >= 0 && row < spec.product.m && element == row * spec.product.d.row_stride + at[rows],
           "a row that is not that of the product");
    seen.insert(row);
    more = false;
    for (std::size_t d = domain.size(); d-- > 0 && !more;) {
      more = ++at[d] < domain[d];
      if (!more) at[d] = 0;
    }
  }
  expect(static_cast<std::int64_t>(seen.size()) == spec.product.m, "rows that nobody wants");
}

void FakePlan::run(const ProductStep& step) {
  const MatrixProductSpec& s = step.spec;
  expect(s.m > 0 && s.n > 0 && s.k > 0 && s.batch > 0, "an empty product");
  for (const Pointer* pointer : {&step.a, &step.b, &step.d, &step.residual})
    expect(reinterpret_cast<std::uintptr_t>(address(*pointer)) % static_cast<unsigned>(s.alignment) == 0 ||
               pointer->buffer < 0,
           "an address that is less aligned than promised");
  const auto is_matrix = [](const MatrixOperand& o, std::int64_t rows, std::int64_t columns) {
    return (o.column_stride == 1 && (o.row_stride >= columns || rows == 1)) ||
           (o.row_stride == 1 && (o.column_stride >= rows || columns == 1));
  };
  expect(is_matrix(s.a, s.m, s.k) && is_matrix(s.b, s.k, s.n), "strides that are no matrix's");
  expect(s.d.column_stride == 1 && s.d.row_stride >= s.n, "a result whose rows are apart");
  expect(adds_bias_before_rounding(s), "a bias that may be added to rounded sums");
  expect((step.bias.buffer >= 0) == s.bias && (step.residual.buffer >= 0) == s.residual, "operands that are not there");
  const DataType sum_type = s.operands == DataType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < s.k; ++l) {
          const double x = read(step.a, s.operands, b * s.a.batch_stride + i * s.a.row_stride + l * s.a.column_stride),
                       y = read(step.b, s.operands, b * s.b.batch_stride + l * s.b.row_stride + j * s.b.column_stride);
          sum +=
              s.operands == DataType::kFloat64 ? x * y : static_cast<double>(tf32_if(s.tf32, x)) * tf32_if(s.tf32, y);
        }
        const std::int64_t to = b * s.d.batch_stride + i * s.d.row_stride + j;
        if (s.operands == DataType::kInt8) {
          expect(s.result == DataType::kInt32 && std::fabs(sum) < 0x1p31, "a sum that is no int32");
          write(step.d, s.result, to, sum);
          continue;
        }
        const auto rounded = [&](double v) { return sum_type == DataType::kFloat64 ? v : static_cast<float>(v); };
        double value = rounded(sum);
        if (s.operands == DataType::kFloat8E4M3) value = rounded(static_cast<float>(value) * step.factor);
        if (s.bias) value = rounded(value + read(step.bias, s.result, j));
        if (s.residual) value = rounded(value + read(step.residual, s.result, to));
        if (s.relu && value <= 0) value = 0;
        write(step.d, s.result, to, value);
      }
}

namespace {

float stepped(ConvolutionStep::Kind kind, float value, float operand) {
  using Kind = ConvolutionStep::Kind;
  const double x = value;
  switch (kind) {
    case Kind::kBias:
    case Kind::kResidual:
      return value + operand;
    case Kind::kRelu:
      return value <= 0 ? 0.0f : value;
    case Kind::kSigmoid:
      return static_cast<float>(1 / (1 + std::exp(-x)));
    case Kind::kTanh:
      return static_cast<float>(std::tanh(x));
    case Kind::kSwish:
      return static_cast<float>(x / (1 + std::exp(-x)));
    case Kind::kGelu:
      return static_cast<float>(x * 0.5 * (1 + std::erf(x * std::sqrt(0.5))));
  }
  return value;
}

}  // namespace

void FakePlan::run(const ConvolveStep& step) {
  const ConvolutionSpec& s = step.spec;
  const std::size_t spatial = s.strides.size();
  expect(s.input.size() == spatial + 2 && s.weights.size() == spatial + 2 && s.output.size() == spatial + 2,
         "shapes of different ranks");
  expect(s.weights[0] == s.output[1] && s.weights[1] * s.groups == s.input[1] && s.output[1] % s.groups == 0 &&
             s.input[0] == s.output[0],
         "channels that do not fit");
  expect(step.steps.size() == s.steps.size(), "steps without operands");
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t reach = (s.weights[d + 2] - 1) * s.dilations[d] + 1;
    expect(s.pads_begin[d] >= 0 && s.pads_end[d] >= 0 &&
               s.output[d + 2] == (s.input[d + 2] + s.pads_begin[d] + s.pads_end[d] - reach) / s.strides[d] + 1,
           "windows that do not fit");
  }
  for (const Pointer* pointer : {&step.x, &step.weights, &step.y})
    expect(reinterpret_cast<std::uintptr_t>(address(*pointer)) % 16 == 0, "an address that is not aligned");
  const std::vector<std::int64_t> x_strides = channels_last_strides(s.input),
                                  w_strides = channels_last_strides(s.weights),
                                  y_strides = channels_last_strides(s.output);
  const std::int64_t per_group = s.weights[1], outputs = s.output[1] / s.groups;
  const auto next = [](const Shape& shape, std::vector<std::int64_t>& at, std::size_t first) {
    for (std::size_t d = shape.size(); d-- > first;) {
      if (++at[d] < shape[d]) return true;
      at[d] = 0;
    }
    return false;
  };
  std::vector<std::int64_t> at(s.output.size(), 0);
  do {
    double sum = 0;
    std::vector<std::int64_t> tap(s.weights.size(), 0);
    do {
      std::int64_t x = at[0] * x_strides[0], w = at[1] * w_strides[0];
      bool inside = true;
      for (std::size_t d = 0; d < spatial; ++d) {
        const std::int64_t place = at[d + 2] * s.strides[d] - s.pads_begin[d] + tap[d + 2] * s.dilations[d];
        inside &= place >= 0 && place < s.input[d + 2];
        x += place * x_strides[d + 2];
        w += tap[d + 2] * w_strides[d + 2];
      }
      for (std::int64_t c = 0; inside && c < per_group; ++c)
        sum += static_cast<double>(tf32_if(s.tf32, read(step.x, s.operands, x + at[1] / outputs * per_group + c))) *
               tf32_if(s.tf32, read(step.weights, s.operands, w + c));
    } while (next(s.weights, tap, 2));
    std::int64_t to = 0;
    for (std::size_t d = 0; d < at.size(); ++d) to += at[d] * y_strides[d];
    if (s.stored == DataType::kInt32) {
      expect(s.steps.empty() && std::fabs(sum) < 0x1p31, "a sum that is no int32");
      write(step.y, s.stored, to, sum);
      continue;
    }
    auto value = static_cast<float>(sum);
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
      const auto& [kind, type] = s.steps[i];
      const bool bias = kind == ConvolutionStep::Kind::kBias, reads = bias || kind == ConvolutionStep::Kind::kResidual;
      expect((step.steps[i].buffer >= 0) == reads, "an operand that is not there");
      value = stepped(kind, value, reads ? static_cast<float>(read(step.steps[i], type, bias ? at[1] : to)) : 0.0f);
    }
    write(step.y, s.stored, to, value);
  } while (next(s.output, at, 0));
}

}  // namespace ulpscope::cuda::fake
