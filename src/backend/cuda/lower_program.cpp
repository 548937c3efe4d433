// Programs: loads are strided inputs of a generated kernel, in the type and order of what is there.
#include <fmt/format.h>

#include "backend/cuda/placement.h"

namespace ulpscope::cuda {

ProgramAssembly::ProgramAssembly(Shape domain, int row_dims) {
  spec_.domain = std::move(domain);
  spec_.row_dims = row_dims;
}

Register ProgramAssembly::input(const View& view, std::vector<std::int64_t> strides, Rounding rounding) {
  reads_.push_back(pointer(view));
  spec_.inputs.push_back({view.type, std::move(strides), rounding, alignment_of(view)});
  return spec_.program.load(static_cast<int>(spec_.inputs.size()) - 1);
}

void ProgramAssembly::output(Register source, const View& view, std::vector<std::int64_t> strides, Rounding rounding,
                             std::optional<Quantization> quantization) {
  writes_.push_back(pointer(view));
  spec_.outputs.push_back({source, view.type, std::move(strides), rounding, alignment_of(view), quantization});
}

Register ProgramAssembly::input(ProgramInput input, const Pointer& from) {
  reads_.push_back(from);
  spec_.inputs.push_back(std::move(input));
  return spec_.program.load(static_cast<int>(spec_.inputs.size()) - 1);
}

void ProgramAssembly::output(ProgramOutput output, const Pointer& to) {
  writes_.push_back(to);
  spec_.outputs.push_back(std::move(output));
}

void ProgramAssembly::refine(const FineStrides& first) {
  for (ProgramInput& input : spec_.inputs) input.strides = finer_strides(spec_.domain, input.strides, first.dims);
  for (ProgramOutput& output : spec_.outputs) output.strides = finer_strides(spec_.domain, output.strides, first.dims);
  spec_.inputs[0].strides = first.strides;
  spec_.domain = first.dims;
}

KernelStep ProgramAssembly::finish() && { return {shared_program(spec_), std::move(reads_), std::move(writes_)}; }

namespace {

std::vector<std::int64_t> channel_strides(const Shape& domain) {
  std::vector<std::int64_t> strides(domain.size(), 0);
  if (domain.size() > 1 && domain[1] != 1) strides[1] = 1;
  return strides;
}

/// Strides over the domain of a tensor that has its shape, or one value per row: with its row dimensions at size 1, or
/// without them.
std::vector<std::int64_t> output_strides(const Shape& domain, int row_dims, const Shape& shape,
                                         std::span<const std::int64_t> strides) {
  if (shape == domain) return {strides.begin(), strides.end()};
  std::vector<std::int64_t> result(domain.size(), 0);
  for (std::size_t d = 0; d + static_cast<std::size_t>(row_dims) < domain.size(); ++d) result[d] = strides[d];
  return result;
}

}  // namespace

Register Programs::load(const ProgramKernel& kernel, const Load& load, ProgramAssembly& assembly) {
  const TensorId id = load.operand.tensor;
  const Shape& domain = kernel.domain;
  if (const Tensor value = constants_.of_load(load, kernel.layers[0])) {
    if (value.size() == 1 && value.type() == DataType::kFloat32)
      return assembly.program().constant(value.data<float>()[0]);
    const Rounding rounding = load.operand.is_encoded() ? Rounding::kNone : load.operand.rounding;
    // Scales and shifts are made of rounded parameters, and are not rounded themselves.
    const bool narrow = load.source == Load::Source::kTensor && value.type() == DataType::kFloat32;
    const std::string name =
        load.source == Load::Source::kTensor
            ? constants_.key(id) + (load.operand.is_encoded() ? fmt::format("|of {}", kernel.layers[0].number()) : "")
            : fmt::format("{}{}|{}", weights_.scope(), load.normalization.number(), static_cast<int>(load.source));
    const View view = memory_.constant_view(
        value, fmt::format("{}|load {} {}", name, static_cast<int>(load.operand.first), static_cast<int>(rounding)),
        narrow ? type_of(rounding) : value.type());
    return assembly.input(
        view, load.per_channel ? channel_strides(domain) : broadcast_strides(value.shape(), view.strides, domain),
        Rounding::kNone);
  }
  const View view = memory_.device_view(load.operand);
  const Rounding rounding = missing_rounding(view.type, load.operand.rounding);
  return assembly.input(view,
                        load.per_channel ? channel_strides(domain)
                                         : broadcast_strides(shape_of(spec_, load.operand), view.strides, domain),
                        rounding);
}

void Programs::assemble(const ProgramKernel& kernel, ProgramAssembly& assembly, std::vector<Register>& registers) {
  const auto& values = kernel.program.values;
  registers.resize(values.size(), -1);
  std::vector<char> wanted(values.size(), 0);
  for (const ProgramKernel::Output& output : kernel.outputs) wanted[output.source] = 1;
  for (std::size_t r = values.size(); r-- > 0;) {
    if (wanted[r] == 0 || registers[r] >= 0) continue;
    if (values[r].a >= 0) wanted[values[r].a] = 1;
    if (values[r].b >= 0) wanted[values[r].b] = 1;
  }
  for (std::size_t r = 0; r < values.size(); ++r) {
    if (wanted[r] == 0 || registers[r] >= 0) continue;
    const Program::Value& value = values[r];
    const auto of = [&](Register operand) { return operand < 0 ? -1 : registers[operand]; };
    if (value.kind == Program::Kind::kLoad)
      registers[r] = load(kernel, kernel.loads[value.load], assembly);
    else if (value.kind == Program::Kind::kConstant)
      registers[r] = assembly.program().constant(value.constant);
    else
      registers[r] = assembly.program().apply(value.instruction, of(value.a), of(value.b), value.p, value.q);
  }
}

void Programs::store_outputs(const ProgramKernel& kernel, ProgramAssembly& assembly,
                             const std::vector<Register>& registers, const std::vector<std::int64_t>& order) {
  for (const auto& [source, store] : kernel.outputs) {
    const Shape dims = shape_of(spec_, store);
    if (store.row_sums) {
      const std::vector<std::int64_t> strides = ops::strides_of(dims);
      assembly.output(registers[source], memory_.define(store, strides),
                      output_strides(kernel.domain, kernel.row_dims, dims, strides), Rounding::kNone);
      continue;
    }
    const std::vector<std::int64_t> strides = dims == kernel.domain ? order : ops::strides_of(dims);
    const std::vector<std::int64_t> over = output_strides(kernel.domain, kernel.row_dims, dims, strides);
    // Where products alone read it, as elements, nothing else is left of it.
    const bool plain = dims == kernel.domain && strides == ops::strides_of(dims);
    const WantedElements wanted = plain ? wanted_elements(*this, store) : WantedElements();
    for (const auto& [quantization, type] : wanted.forms) {
      const View elements = steps_.new_view(type, dims, strides);
      memory_.elements()[{store.tensor, false, quantization.scale, quantization.elements, type, dims, strides}] =
          elements;
      assembly.output(registers[source], elements, over, store.rounding, quantization);
    }
    if (wanted.alone) continue;
    const auto part = parts_.define(store, strides);
    assembly.output(registers[source], part ? *part : memory_.define(store, strides), over, store.rounding);
    if (const auto exact = memory_.define_exact(store, strides))
      assembly.output(registers[source], *exact, over, Rounding::kNone);
  }
}

void Programs::define_empty(std::span<const ProgramKernel::Output> outputs) {
  for (const auto& [source, store] : outputs) {
    memory_.define(store, ops::strides_of(shape_of(spec_, store)));
    memory_.define_exact(store, ops::strides_of(shape(store.tensor)));
  }
}

void Programs::lower(const ProgramKernel& kernel) {
  steps_.begin(kernel.layers.back());
  if (num_elements(kernel.domain) == 0) return define_empty(kernel.outputs);
  ProgramAssembly assembly(kernel.domain, kernel.row_dims);
  std::vector<Register> registers;
  assemble(kernel, assembly, registers);
  // The results lie as the first operand does that fills the domain.
  std::vector<std::int64_t> order = ops::strides_of(kernel.domain);
  for (const ProgramInput& input : assembly.spec().inputs)
    if (is_one_to_one(kernel.domain, input.strides)) {
      order = ordered_strides(kernel.domain, input.strides);
      break;
    }
  store_outputs(kernel, assembly, registers, order);
  add(std::move(assembly));
}

}  // namespace ulpscope::cuda
