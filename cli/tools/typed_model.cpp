#include "tools/typed_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/file.h"
#include "interrupt.h"
#include "precision/fingerprint.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

namespace fs = std::filesystem;

TensorMap typed_inputs(TensorMap inputs, const std::map<std::string, DataType>& types) {
  for (NamedTensor& each : inputs)
    if (const auto found = types.find(each.name); found != types.end() && each.tensor.type() != found->second)
      each.tensor = each.tensor.cast(found->second);
  return inputs;
}

void report(const Conversion& result, const std::string& output, std::vector<std::string> checked) {
  if (result.checked > 0)
    checked.insert(checked.begin(), fmt::format("ulpscope ({} runs, equal in every bit)", result.checked));
  std::string integers;
  if (result.file.quantised > 0)
    integers = fmt::format("{} activation(s) quantised, {} constant(s) in int8, ", result.file.quantised,
                           result.file.integer_weights);
  log_info(
      fmt::format("Saving typed model to {}: {} layer(s) lowered, {}{} cast(s) added to the {} of the model, "
                  "{} node(s) removed, {:.1f} MB{}",
                  output, result.lowered, integers, result.file.casts, result.file.source_casts, result.file.removed,
                  static_cast<double>(result.file.bytes) / 1e6,
                  result.file.external ? fmt::format(" (weights in {}.data)", output) : ""));
  if (!checked.empty()) log_info(fmt::format("Checked by {}", fmt::join(checked, ", ")));
}

}  // namespace

std::shared_ptr<const Specialization> specialize_for(const Network& network, const TensorMap& sample) {
  std::vector<Shape> shapes;
  for (TensorId id : network.inputs) {
    const auto found = std::ranges::find(sample, network.tensor(id).name, &NamedTensor::name);
    shapes.push_back(found == sample.end() ? Shape{} : found->tensor.shape());
  }
  return specialize(network, shapes);
}

Conversion write_typed_model(const Specialization& spec, const Assignment& assignment,
                             const std::vector<Repair>& repairs, const TypedModelRequest& request, OnnxChecks* checks) {
  check_interrupted();
  const auto file = MappedFile::open(request.model);
  ConvertOptions options;
  options.fusion = request.fusion;
  options.io_types = request.io_types;
  options.samples = request.samples;
  options.verify = request.verify;
  options.external_data_dir = request.external_data_dir;
  if (options.external_data_dir.empty()) options.external_data_dir = request.model.parent_path();
  if (options.external_data_dir.empty()) options.external_data_dir = ".";
  options.raised = request.raised;
  options.source = hash_of_file(request.model);
  options.version = ULPSCOPE_VERSION;
  options.interrupt = check_interrupted;
  const auto bf16 = [](const auto& entry) { return entry.second == DataType::kBFloat16; };
  const bool bfloat16 = std::ranges::count(assignment.precision, Precision::kBF16) > 0 ||
                        assignment.int8_output == DataType::kBFloat16 || std::ranges::any_of(request.io_types, bf16);
  std::vector<std::string> checked;
  if (checks != nullptr)
    options.check = [&](const fs::path& typed) {
      check_interrupted();
      checked = checks->check(typed, typed_inputs(request.samples.front(), options.io_types), bfloat16);
    };
  Conversion result;
  {
    const EndsByItself ends_by_itself;
    result = convert(spec, std::as_const(*file).bytes(), assignment, repairs, options, request.output);
  }
  report(result, request.output.string(), std::move(checked));
  return result;
}

void check_typed_output(const fs::path& model, const std::string& option, const std::string& output) {
  std::error_code ignored;
  if (fs::equivalent(model, output, ignored))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[options] {} {}: expected another file than the model", option, output));
  if (fs::is_directory(output, ignored))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[options] {} {}: expected a file, got a folder", option, output));
  if (fs::is_other(output, ignored))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[options] {} {}: expected a file, got a device or pipe", option, output));
}

}  // namespace ulpscope::cli
