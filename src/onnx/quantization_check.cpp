#include "onnx/quantization_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "core/counted.h"
#include "core/file.h"
#include "core/messages.h"
#include "onnx/element_type.h"
#include "onnx/quantization_graph.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace onnx_model {
namespace {

using Severity = QuantizationProblem::Severity;
using Kind = QuantizationProblem::Kind;
using Proto = onnx::TensorProto;

/// The magnitude that some block of weights in this format reaches when scales are made of largest values; 0: not said.
double reached_value(DataType type) {
  constexpr std::pair<DataType, double> kReached[] = {
      {DataType::kFloat4E2M1, 6},
      {DataType::kInt4, 7},
      {DataType::kInt8, 127},
      {DataType::kFloat8E4M3, 256},  // A power of two above largest / 448 leaves up to a factor of 2.
  };
  const auto* found = std::ranges::find(kReached, type, &std::pair<DataType, double>::first);
  return found != std::end(kReached) ? found->second : 0;
}

class QuantizationCheck {
 public:
  QuantizationCheck(std::vector<QuantizationProblem>& problems, bool reads_codes)
      : problems_(problems), reads_codes_(reads_codes) {}

  void visit(const QuantizationGraph& graph) {
    std::map<std::string, const onnx::NodeProto*> first_quantizer;
    for (const onnx::NodeProto& node : graph.proto().node()) {
      graph_ = &graph;
      node_ = &node;
      const Role role = role_of(node);
      if (role == Role::kMatMulNBits && node.input_size() > 2) check_numbers(stored_scale(node.input(2)), true);
      if (role == Role::kFp4Dynamic) check_fp4_dynamic();
      if (role == Role::kMxDynamic) check_attributes(32, "output_dtype", Proto::FLOAT8E4M3FN);
      if (role == Role::kMxDequantize) check_mx_dequantize();
      if (role == Role::kQuantize || role == Role::kDequantize) check_pair();
      if (role == Role::kQuantize || role == Role::kFp4Dynamic) check_repeated(first_quantizer);
      for_each_body(node, [&](const onnx::GraphProto& body) { visit_body(body); });
    }
  }

 private:
  void visit_body(const onnx::GraphProto& body) {
    const QuantizationGraph* outer = graph_;
    const onnx::NodeProto* node = node_;
    visit(QuantizationGraph(body, outer->reader(), outer));
    graph_ = outer;
    node_ = node;
  }

  template <typename... T>
  void add(Severity severity, Kind kind, fmt::format_string<T...> text, T&&... values) {
    problems_.push_back({severity, kind, node_name(*node_), fmt::format(text, std::forward<T>(values)...)});
  }

  // --- Scales

  /// `any_sign`: of a format whose scales may be 0 or negative.
  void check_numbers(const std::string& name, bool any_sign) {
    const Tensor scales = graph_->elements(name);
    if (!scales) return;
    const Tensor wide = scales.cast(DataType::kFloat32);
    const float smallest = smallest_normal(scales.type());
    std::array<std::int64_t, 5> counts{};
    for (const float s : wide.values<float>()) {
      const bool finite = std::isfinite(s);
      const std::array<bool, 5> is{s == 0, s < 0, s != s, std::isinf(s), finite && s != 0 && std::abs(s) < smallest};
      for (std::size_t i = 0; i < is.size(); ++i) counts[i] += is[i] ? 1 : 0;
    }
    if (counts[4] > 0 && reads_codes_ && node_->input(1) == name) {
      const std::vector<char> empty = graph_->empty_blocks(*node_);  // It does not matter what their scales are.
      for (std::size_t i = 0; i < empty.size(); ++i)
        if (const float s = wide.data<float>()[i]; empty[i] != 0 && s != 0 && std::abs(s) < smallest) --counts[4];
    }
    constexpr std::array kNames{"0", "negative", "NaN", "infinite", "denormal"};
    for (std::size_t i = any_sign ? 2 : 0; i < 4; ++i)
      if (counts[i] > 0)
        add(Severity::kProblem, Kind::kScaleValue, "{} of the {} scales in '{}' {} {}: expected finite numbers above 0",
            counts[i], wide.size(), name, counts[i] == 1 ? "is" : "are", kNames[i]);
    if (counts[4] > 0)
      add(Severity::kWarning, Kind::kDenormalScale, "{} of the {} scales in '{}' {} denormal in {}, with fewer bits",
          counts[4], wide.size(), name, counts[4] == 1 ? "is" : "are", ulpscope::name_of(scales.type()));
  }

  static float smallest_normal(DataType type) {
    if (is_storage_only(type)) return 0;  // The scales of blocks: their own scale makes up for it.
    const NumericFormat* format = format_of(type);
    return format == nullptr ? 0 : static_cast<float>(std::ldexp(1.0, format->min_exponent()));
  }

  /// The codes of scales that are scaled themselves.
  void check_scaled_scales(const onnx::NodeProto& maker) {
    const Tensor codes = graph_->elements(maker.input(0));
    if (!codes || codes.type() != DataType::kFloat8E4M3) return;
    std::int64_t zeros = 0, wrong = 0;
    const Tensor wide = codes.cast(DataType::kFloat32);
    for (const float s : wide.values<float>()) {
      zeros += s == 0 ? 1 : 0;
      wrong += !(s >= 0) ? 1 : 0;
    }
    if (wrong > 0)
      add(Severity::kProblem, Kind::kScaleValue,
          "{} of the {} scales of blocks in '{}' are negative or NaN: expected numbers above 0", wrong, codes.size(),
          maker.input(0));
    if (zeros > 0)
      add(Severity::kWarning, Kind::kVanishingBlock,
          "{} of the {} scales of blocks in '{}' are 0: these blocks are lost", zeros, codes.size(), maker.input(0));
  }

  /// Behind a Cast or an Identity.
  const std::string& stored_scale(const std::string& name) const {
    const onnx::NodeProto* maker = graph_->producer(name);
    const bool hands_on = maker != nullptr && (maker->op_type() == "Cast" || maker->op_type() == "Identity");
    return hands_on && maker->input_size() == 1 ? maker->input(0) : name;
  }

  void check_scale(const std::string& name) {
    if (const Proto* proto = graph_->constant(name)) {
      const int type = proto->data_type();
      if (type == Proto::FLOAT8E8M0 || type == Proto::FLOAT8E4M3FN)
        add(Severity::kTensorRt, Kind::kScaleType, "TensorRT takes no {} as scales, which '{}' holds; try {}",
            onnx_type_name(type), name,
            type == Proto::FLOAT8E4M3FN ? "a DequantizeLinear of their own"
                                        : "TRT_MXFP8DequantizeLinear with the codes as uint8");
      return check_numbers(name, false);
    }
    if (const onnx::NodeProto* maker = graph_->producer(name);
        maker != nullptr && role_of(*maker) == Role::kDequantize && maker->input_size() > 1)
      check_scaled_scales(*maker);
    else
      check_numbers(stored_scale(name), false);
    if (!graph_->is_settled(name))
      add(Severity::kTensorRt, Kind::kComputedScale,
          "the scale '{}' is computed when the network runs; TensorRT wants a constant, or scales of its dynamic "
          "quantizers",
          name);
  }

  /// Scales of blocks in floats. Those of NVFP4 are numbers of E4M3, of four digits, times one number; powers of two
  /// are such, too. ModelOpt made codes by scales that it rounded to E4M3 afterwards.
  void check_rounded(const std::string& name) {
    const Tensor scales = graph_->elements(name);
    if (!scales || is_storage_only(scales.type())) return;
    const Tensor wide = scales.cast(DataType::kFloat32);
    const std::span<const float> all = wide.values<float>();
    const double largest = all.empty() ? 0 : std::ranges::max(all);
    if (!(largest > 0) || std::isinf(largest)) return;
    const NumericFormat* format = format_of(scales.type());
    const double slack = std::ldexp(32.0, format == nullptr ? -23 : -format->mantissa_bits);
    for (double digits = 8; digits < 16; ++digits)
      if (std::ranges::all_of(all, [&](float scale) {
            int exponent = 0;
            const double same = 16 * std::frexp(scale * digits / largest, &exponent);
            return std::abs(same - std::rint(same)) <= slack;
          }))
        return;
    add(Severity::kWarning, Kind::kUnroundedScale,
        "the scales of blocks in '{}' are no numbers of float8e4m3fn under one scale, which those of NVFP4 are: "
        "TensorRT rounds them, after the codes were made; try to round them first",
        name);
  }

  // --- Codes

  /// Of constant weights: what stands for no number makes all that it is multiplied into none.
  void check_code_values(const std::string& name) {
    const Proto* proto = reads_codes_ ? graph_->constant(name) : nullptr;
    if (proto == nullptr || (proto->data_type() != Proto::FLOAT8E4M3FN && proto->data_type() != Proto::FLOAT8E5M2))
      return;
    const Tensor codes = graph_->elements(name);
    if (!codes) return;
    // Without its sign, the code of the first value that is no number: NaN, or infinity of E5M2.
    const int first = proto->data_type() == Proto::FLOAT8E4M3FN ? 0x7f : 0x7c;
    const std::span all(static_cast<const std::uint8_t*>(codes.raw()), codes.bytes());
    const auto count = std::ranges::count_if(all, [&](std::uint8_t code) { return (code & 0x7f) >= first; });
    if (count > 0)
      add(Severity::kProblem, Kind::kCodeValue, "{} of the {} codes in '{}' {} NaN{}: expected finite numbers", count,
          codes.size(), name, count == 1 ? "is" : "are", first == 0x7f ? "" : " or infinite");
  }

  // --- Shapes

  void check_pair() {
    const onnx::NodeProto& node = *node_;
    if (node.input_size() < 2) return;
    check_scale(node.input(1));
    if (role_of(node) == Role::kDequantize) check_code_values(node.input(0));
    const int type = element_type();
    if (type == Proto::FLOAT8E5M2)
      add(Severity::kTensorRt, Kind::kType, "TensorRT quantizes to no float8e5m2, only to float8e4m3fn");
    const bool four_bits = type == Proto::INT4 || type == Proto::UINT4 || type == Proto::FLOAT4E2M1;
    const auto data = graph_->shape(node.input(0)), scale = graph_->shape(node.input(1));
    if (data && four_bits && num_elements(*data) % 2 != 0)
      add(Severity::kTensorRt, Kind::kOddElements,
          "'{}' has {} elements of 4 bits; TensorRT takes even numbers of them", node.input(0), num_elements(*data));
    if (!data || !scale || (num_elements(*scale) == 1 && scale->size() <= 1)) return;
    if (scale->size() == 1 && (data->size() > 1 || !has_attribute("block_size"))) return check_channels(*data, *scale);
    if (scale->size() != data->size())
      return add(Severity::kProblem, Kind::kScaleShape, "scales of shape {} fit no axis of '{}' of shape {}",
                 to_string(*scale), node.input(0), to_string(*data));
    check_blocks(*data, *scale, type == Proto::FLOAT4E2M1);
  }

  void check_channels(const Shape& data, const Shape& scale) {
    const std::int64_t axis = axis_in(data, 1);
    if (axis < 0 || data[static_cast<std::size_t>(axis)] != scale[0])
      add(Severity::kProblem, Kind::kScaleShape, "{} scales do not fit axis {} of '{}' of shape {}", scale[0],
          integer("axis", 1), node_->input(0), to_string(data));
  }

  void check_blocks(const Shape& data, const Shape& scale, bool fp4) {
    std::vector<std::size_t> blocked;
    bool partial = false;
    const std::int64_t block = integer("block_size", 0);
    for (std::size_t d = 0; d < data.size(); ++d) {
      if (data[d] == scale[d]) continue;
      blocked.push_back(d);
      const bool divides = scale[d] > 0 && data[d] % scale[d] == 0;
      const bool last_shorter = block > 0 && (data[d] + block - 1) / block == scale[d];
      partial |= last_shorter && data[d] % block != 0;  // Even where as many blocks of another size divide it.
      if ((divides && (block == 0 || data[d] / scale[d] == block)) || last_shorter) continue;
      return add(Severity::kProblem, Kind::kScaleShape, "scales of shape {} fit no blocks{} of '{}' of shape {}",
                 to_string(scale), block > 0 ? fmt::format(" of {}", block) : "", node_->input(0), to_string(data));
    }
    if (blocked.size() > 1)
      return add(Severity::kProblem, Kind::kSeveralBlocked, "blocks lie along {} axes ({}) of '{}'; one is allowed",
                 blocked.size(), fmt::join(blocked, ", "), node_->input(0));
    if (blocked.empty())
      return add(Severity::kTensorRt, Kind::kSeveralBlocked, "no axis of '{}' has blocks of more than one element",
                 node_->input(0));
    const std::int64_t axis = axis_in(data, 1);
    if (block == 0 && domain_of(node_->domain()) != "trt")
      add(Severity::kProblem, Kind::kScaleShape, "has scales of blocks and no block_size, which ONNX asks for");
    else if (axis != static_cast<std::int64_t>(blocked[0]))
      add(Severity::kProblem, Kind::kScaleShape, "blocks lie along axis {} of '{}', but its axis is {}", blocked[0],
          node_->input(0), integer("axis", 1));
    else if (fp4 && !has_attribute("axis"))
      add(Severity::kWarning, Kind::kDefaultAxis, "the axis of blocks of 4-bit floats is left to its default, 1");
    if (partial)
      add(Severity::kTensorRt, Kind::kPartialBlock, "blocks of {} do not divide the {} elements along axis {} of '{}'",
          block, data[blocked[0]], blocked[0], node_->input(0));
    if (fp4) check_rounded(node_->input(1));
    check_codes(blocked[0], data, scale);
  }

  /// Of blocks that have a scale each, some have to use all of their format.
  void check_codes(std::size_t axis, const Shape& data, const Shape& scale) {
    if (!reads_codes_ || (role_of(*node_) != Role::kDequantize && role_of(*node_) != Role::kMxDequantize)) return;
    const Tensor codes = graph_->elements(node_->input(0));
    const double least = codes ? reached_value(codes.type()) : 0;
    if (least == 0 || num_elements(scale) == 0 || data[axis] == 0 || node_->input_size() > 2) return;
    // E8M0 has nothing below 2^-127 (code 0): under it, smaller numbers have small codes.
    const Tensor scales = graph_->elements(node_->input(1));
    if (scales && std::ranges::all_of(scales.cast(DataType::kFloat32).values<float>(),
                                      [](float each) { return each <= 0x1p-127f; }))
      return;
    const Tensor wide = codes.cast(DataType::kFloat32);
    float largest = 0;
    for (const float code : wide.values<float>()) {
      largest = std::max(largest, std::abs(code));
      if (largest >= static_cast<float>(least)) return;
    }
    if (largest > 0)
      add(Severity::kWarning, Kind::kUnusedCodes,
          "no block of '{}' has codes beyond {}, of {} and more that {} has: its scales are too large, or were changed "
          "after the codes were made",
          node_->input(0), largest, least, ulpscope::name_of(codes.type()));
  }

  // --- TensorRT's operators

  /// Of a dynamic quantizer: the one block size and the one value of `type` that TensorRT has, and what it does not
  /// read.
  void check_attributes(std::int64_t block, std::string_view type, std::int64_t only) {
    if (const std::int64_t given = integer("block_size", block); given != block && given != 0)
      add(Severity::kTensorRt, Kind::kAttribute,
          "expected a block_size of {}, the only one that TensorRT takes, got {}", block, given);
    if (const std::int64_t given = integer(type, only); given != only && given != 0)
      add(Severity::kTensorRt, Kind::kAttribute, "expected {} {} ({}), the only one that TensorRT makes, got {}", type,
          only, onnx_type_name(static_cast<int>(only)), given);
    for (const onnx::AttributeProto& attribute : node_->attribute())
      if (attribute.name() != "axis" && attribute.name() != "block_size" && attribute.name() != type)
        add(Severity::kWarning, Kind::kAttribute, "TensorRT's parser ignores the attribute {}", attribute.name());
  }

  void check_fp4_dynamic() {
    check_attributes(16, "scale_type", Proto::FLOAT8E4M3FN);
    if (node_->input_size() < 2) return;
    const std::string& scale = node_->input(1);
    if (graph_->constant(scale) == nullptr)
      add(Severity::kTensorRt, Kind::kComputedScale,
          "TensorRT wants an initializer of one element as input 1, got '{}'", scale);
    check_numbers(scale, false);
    const auto data = graph_->shape(node_->input(0));
    const std::int64_t block = 16;
    if (!has_attribute("axis") && (!data || data->size() <= 2))
      add(Severity::kWarning, Kind::kDefaultAxis, "the axis is left to its default, 1, not the last; try to write -1");
    else if (!has_attribute("axis"))
      add(Severity::kProblem, Kind::kDefaultAxis,
          "the axis is left to its default, 1, and '{}' has {} dimensions; try to write -1", node_->input(0),
          data->size());
    if (!data) return;
    const std::int64_t axis = axis_in(*data, 1);
    if (axis < 0 || (*data)[static_cast<std::size_t>(axis)] % block != 0)
      add(Severity::kProblem, Kind::kPartialBlock, "blocks of {} do not divide axis {} of '{}' of shape {}", block,
          integer("axis", 1), node_->input(0), to_string(*data));
  }

  void check_mx_dequantize() {
    if (node_->input_size() < 2) return;
    if (const Proto* scales = graph_->constant(node_->input(1)); scales != nullptr) {
      if (scales->data_type() != Proto::UINT8)
        add(Severity::kTensorRt, Kind::kScaleType, "TensorRT wants uint8 codes as scales, '{}' holds {}",
            node_->input(1), onnx_type_name(scales->data_type()));
      const Tensor codes = graph_->elements(node_->input(1));
      if (codes && codes.type() == DataType::kUInt8 && std::ranges::count(codes.values<std::uint8_t>(), 255) > 0)
        add(Severity::kProblem, Kind::kScaleValue, "some scales in '{}' are NaN (code 255)", node_->input(1));
    } else if (!graph_->is_settled(node_->input(1))) {
      add(Severity::kTensorRt, Kind::kComputedScale, "the scale '{}' is computed when the network runs",
          node_->input(1));
    }
    const auto data = graph_->shape(node_->input(0)), scale = graph_->shape(node_->input(1));
    if (data && scale && scale->size() == data->size()) check_blocks(*data, *scale, false);
  }

  // --- Several quantizers of one tensor

  void check_repeated(std::map<std::string, const onnx::NodeProto*>& first_quantizer) {
    const onnx::NodeProto& node = *node_;
    if (node.input_size() < 2) return;
    const auto [found, is_first] = first_quantizer.emplace(node.input(0), &node);
    if (!is_first && !graph_->same_quantizer(*found->second, node))
      add(Severity::kWarning, Kind::kSeveralScales,
          "'{}' is quantized by '{}', too, with other scales or to another type", node.input(0),
          node_name(*found->second));
    const onnx::NodeProto* source = graph_->behind_movement(node.input(0));
    if (source != nullptr && role_of(*source) == Role::kDequantize && source->input_size() > 1 &&
        !graph_->same_quantizer(*source, node))
      add(Severity::kWarning, Kind::kQuantizedAgain,
          "'{}' comes out of '{}' and is quantized again, with other scales or to another type", node.input(0),
          node_name(*source));
  }

  // --- The node

  int element_type() const { return graph_->quantized_type(*node_); }
  std::int64_t integer(std::string_view name, std::int64_t absent) const {
    const onnx::AttributeProto* attribute = find_attribute(*node_, name);
    return attribute == nullptr ? absent : attribute->i();
  }
  bool has_attribute(std::string_view name) const { return find_attribute(*node_, name) != nullptr; }
  /// In [0, rank); -1 where it is outside.
  std::int64_t axis_in(const Shape& data, std::int64_t absent) const {
    const auto rank = static_cast<std::int64_t>(data.size());
    const std::int64_t axis = integer("axis", absent), positive = axis < 0 ? axis + rank : axis;
    return positive >= 0 && positive < rank ? positive : -1;
  }

  std::vector<QuantizationProblem>& problems_;
  const bool reads_codes_;
  const QuantizationGraph* graph_ = nullptr;
  const onnx::NodeProto* node_ = nullptr;
};

std::vector<QuantizationProblem> problems_of(std::span<const std::byte> bytes, ModelFile& file,
                                             const std::filesystem::path& folder, bool ignore_external_data,
                                             bool reads_codes = true) {
  read_model(bytes, file);
  std::vector<QuantizationProblem> problems;
  if (!has_quantizers(file.proto.graph())) return problems;
  TensorReader reader(file, folder, ignore_external_data);
  QuantizationCheck(problems, reads_codes).visit(QuantizationGraph(file.proto.graph(), reader, nullptr));
  return problems;
}

}  // namespace
}  // namespace onnx_model

namespace {

std::vector<QuantizationProblem> problems_in(const std::filesystem::path& path, const ImportOptions& options,
                                             bool reads_codes) {
  onnx_model::ModelFile file;
  const std::shared_ptr<MappedFile> mapping = onnx_model::map_model(path, file);
  const std::filesystem::path folder = onnx_model::external_data_folder(path, options.external_data_dir);
  return onnx_model::problems_of(std::as_const(*mapping).bytes(), file, folder, options.ignore_external_data,
                                 reads_codes);
}

}  // namespace

std::vector<QuantizationProblem> check_quantization(const std::filesystem::path& path, const ImportOptions& options) {
  return problems_in(path, options, true);
}

void warn_of_scales(const std::filesystem::path& path, const ImportOptions& options) {
  using Kind = QuantizationProblem::Kind;
  const std::vector<QuantizationProblem> problems = problems_in(path, options, false);
  for (const Kind kind : {Kind::kScaleValue, Kind::kDenormalScale}) {
    const auto first = std::ranges::find(problems, kind, &QuantizationProblem::kind);
    if (first == problems.end()) continue;
    const auto more = std::ranges::count(problems, kind, &QuantizationProblem::kind) - 1;
    log_warning("[import] {}: '{}': {}{}", path.string(), first->node, first->text,
                more > 0 ? fmt::format("; `inspect model` lists {} more like it", more) : std::string());
  }
}

std::vector<QuantizationProblem> check_quantization(std::span<const std::byte> model, const std::string& source,
                                                    const ImportOptions& options) {
  onnx_model::ModelFile file;
  file.source = source;
  const std::filesystem::path folder = options.external_data_dir.empty() ? "." : options.external_data_dir;
  return onnx_model::problems_of(model, file, folder, options.ignore_external_data);
}

std::string_view name_of(QuantizationProblem::Severity severity) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"warning", "TensorRT", "problem"};
  return kNames[static_cast<std::size_t>(severity)];
}

std::string to_text(std::span<const QuantizationProblem> problems) {
  if (problems.empty()) return {};
  using Severity = QuantizationProblem::Severity;
  const auto count = [&](Severity severity) {
    return std::ranges::count(problems, severity, &QuantizationProblem::severity);
  };
  std::vector<std::string> parts{counted(count(Severity::kProblem), "problem")};
  if (const auto n = count(Severity::kTensorRt); n > 0) parts.push_back(fmt::format("{} that TensorRT refuses", n));
  if (const auto n = count(Severity::kWarning); n > 0) parts.push_back(counted(n, "warning"));
  std::string text = fmt::format("Quantization: {}", fmt::join(parts, ", "));
  for (const QuantizationProblem& each : problems)
    text += fmt::format("\n    {} ({}): {}", each.node, name_of(each.severity), each.text);
  return text;
}

void check_written_quantization(std::span<const QuantizationProblem> before, std::span<const QuantizationProblem> after,
                                const std::string& written) {
  std::map<QuantizationProblem::Kind, std::int64_t> left;
  for (const QuantizationProblem& each : before) ++left[each.kind];
  std::vector<QuantizationProblem> inherited;
  for (const QuantizationProblem& each : after) {
    if (--left[each.kind] >= 0)
      inherited.push_back(each);
    else if (each.severity == QuantizationProblem::Severity::kProblem)
      throw InternalError(fmt::format("[convert] {}: the quantizer '{}', which the model does not have so: {}", written,
                                      each.node, each.text));
    else
      log_warning("[convert] The file has a quantizer that the model does not have so, '{}': {}", each.node, each.text);
  }
  if (!inherited.empty())
    log_warning("[convert] The model had these in its quantizers already, and the file has them, too. " +
                to_text(inherited));
}

}  // namespace ulpscope
