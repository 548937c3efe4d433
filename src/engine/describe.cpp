// From groups to kernel descriptions: which values are rounded where, what runs on integers, which BatchNormalization
// goes into which convolution. docs/numerics.md has the rules.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/attention.h"
#include "engine/constant_inputs.h"
#include "engine/element_forms.h"
#include "engine/element_readers.h"
#include "engine/int8.h"
#include "engine/kernels.h"
#include "ops/forms.h"
#include "ops/programs.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

class Describer {
 public:
  Describer(const Specialization& spec, const Assignment& assignment, Grouping grouping)
      : spec_(spec),
        network_(*spec.network),
        assignment_(assignment),
        bodies_(network_.bodies()),
        readings_(find_element_readers(spec, assignment)),
        open_(open_tensors(spec)) {
    schedule_.grouping = std::move(grouping);
    schedule_.storage.resize(network_.tensors.size());
  }

  Schedule run() {
    for (TensorId id : network_.tensors.ids())
      schedule_.storage[id] = schedule_.grouping.internal[id] != 0 ? DataType::kFloat32 : assignment_.storage[id];
    for (TensorId id : network_.inputs) schedule_.storage[id] = spec_.type(id);
    for (const Group& group : schedule_.grouping.groups) {
      kernels_.clear();
      is_attention_ = group.kind == GroupKind::kAttention;
      describe_group(group);
      schedule_.kernels.push_back(std::move(kernels_));
    }
    for (TensorId id : network_.outputs)
      schedule_.outputs.push_back({id, rounding_of(assignment_.storage[id]),
                                   spec_.is_constant(id) ? rounding_of_constant(id) : Rounding::kNone});
    return std::move(schedule_);
  }

 private:
  const Layer& layer(LayerId id) const { return network_.layer(id); }
  const Shape& shape(TensorId id) const { return *spec_.shape(id); }
  bool internal(TensorId id) const { return schedule_.grouping.internal[id] != 0; }
  bool is_product(LayerId id) const { return layer(id).op->kind == OpKind::kContraction; }

  /// What a kernel of these layers of a group leaves of the tensor.
  Store store(TensorId id, std::span<const LayerId> members) const {
    if (id == kNone) return {};
    Store result{id, store_rounding(id)};
    result.exact = result.rounding != Rounding::kNone && std::ranges::any_of(spec_.consumers[id], [&](LayerId r) {
                     return reads_inside(id, r) && std::ranges::find(members, r) == members.end();
                   });
    return result;
  }

  Rounding store_rounding(TensorId id) const {
    const bool kept = internal(id) || spec_.type(id) == DataType::kFloat64;
    return kept ? Rounding::kNone : rounding_of(assignment_.storage[id]);
  }

  /// The reader is in one group with the layer that computes the tensor, and no product: it reads what is not rounded.
  bool reads_inside(TensorId id, LayerId reader) const {
    const LayerId producer = network_.tensor(id).producer;
    if (producer == kNone || spec_.is_constant(id) || is_product(reader)) return false;
    const auto& group_of = schedule_.grouping.group_of;
    return group_of[producer] != kNone && group_of[producer] == group_of[reader];
  }

  /// How a layer rounds what it reads as input `index`.
  Rounding load_rounding(LayerId id, std::size_t index) const {
    const Layer& l = layer(id);
    const TensorId tensor = l.inputs[index];
    if (reads_elements(readings_[id])) return Rounding::kNone;  // Operands are integers; a bias is added as it is.
    if (!spec_.numeric[id] || l.op->precision != PrecisionRule::kCompute) return Rounding::kNone;
    if (spec_.type(tensor) == DataType::kFloat64 || !is_floating(spec_.type(tensor))) return Rounding::kNone;
    // Values inside of a group are not rounded, except the operands of its products.
    if (reads_inside(tensor, id)) return Rounding::kNone;
    // Parameters are no operands: they are read as they are.
    if (index > 0 && ops::is_resize(l)) return Rounding::kNone;
    const Precision p = assignment_.precision[id];
    if (p == Precision::kTF32 && !is_product(id)) return Rounding::kNone;
    return is_of_weights(p) ? rounding_of(storage_as_number()) : rounding_of(p);
  }

  Operand operand(LayerId id, std::size_t index) const {
    const TensorId tensor = layer(id).inputs[index];
    if (tensor == kNone) return {};
    const bool constant = spec_.is_constant(tensor);
    const Rounding first = constant ? rounding_of_constant(tensor) : Rounding::kNone;
    if (reads_elements(readings_[id]) && index < 2) {
      Operand result{.tensor = tensor, .first = first, .encoding = encoding(id, index), .scales = ScaleSource::kOwn};
      if (constant) result.channel_weights = channel_weights_of(spec_, layer(id), index, *result.encoding, assignment_);
      if (constant) return result;
      const bool one_scale = result.encoding->granularity == Granularity::kTensor;
      // Blocks have scales of their own: they are made of the numbers that elements of the file stand for.
      const auto in_file = one_scale ? dequantized(spec_, tensor) : std::nullopt;
      const bool calibrated = one_scale || result.encoding->second_scale;
      if (calibrated) result.scales = ScaleSource::kCalibrated;
      if (in_file) result.encoding->format = in_file->elements;
      if (calibrated)
        result.scale = in_file ? in_file->scale : activation_scale(spec_, tensor, *result.encoding, assignment_.scale);
      return result;
    }
    Operand result{tensor, load_rounding(id, index), first};
    result.exact = reads_inside(tensor, id) && store_rounding(tensor) != Rounding::kNone;
    if (readings_[id] == Reading::kCodedWeights && index == 1) {
      result.encoding = encoding(id, index);
      result.scales = ScaleSource::kOwn;
      result.channel_weights = channel_weights_of(spec_, layer(id), index, *result.encoding, assignment_);
    }
    return result;
  }

  /// What the products of a contraction of two operands are added up in. Blocks bring their scales into the sum, which
  /// no tensor core of the accumulators at hand does.
  std::optional<Accumulator> accumulator(LayerId id, std::span<const Operand> operands) const {
    if (!is_product(id) || operands.size() < 2) return std::nullopt;
    const auto format = [](const Operand& operand) {
      if (!operand.is_encoded()) return format_of(operand.rounding);
      const bool in_blocks = operand.encoding->granularity == Granularity::kBlock;
      return in_blocks ? Format::kFloat32 : operand.encoding->format;
    };
    // Weights alone in elements are numbers, rounded as the activations are.
    const bool numbers = readings_[id] == Reading::kCodedWeights;
    return accumulator_of(assignment_.accumulation, format(operands[0]),
                          numbers ? format_of(operands[1].rounding) : format(operands[1]));
  }

  /// How operand 0 or 1 of a layer that reads elements, or weights of elements, is encoded.
  Encoding encoding(LayerId id, std::size_t index) const {
    const Precision p = assignment_.precision[id];
    if (!is_float(p)) return encoding_of(spec_, layer(id), p, index, storage_as_number(), assignment_.scale_choice);
    const Format format = format_in_file(spec_, layer(id).inputs[index]);
    const TensorId tensor = layer(id).inputs[index];
    // One scale for all of the weights in a float format comes behind the sum with that of the activation, as one.
    const bool shared = format_of(format).is_float && dequantized_weights(spec_, tensor, 0, 1);
    if (is_product(id) && spec_.is_constant(tensor) && !shared)
      return {.format = format, .granularity = Granularity::kChannel, .axis = -1};
    return {.format = format, .granularity = Granularity::kTensor};
  }

  /// In which operands are read beside weights of elements.
  DataType storage_as_number() const { return assignment_.int8_output; }

  /// A Constant layer that is stored in a narrow type is read as such; what is folded is only rounded where it is read.
  Rounding rounding_of_constant(TensorId id) const {
    const LayerId producer = network_.tensor(id).producer;
    const bool stored = producer != kNone && layer(producer).op->kind == OpKind::kConstant &&
                        spec_.value(id).type() == DataType::kFloat32;
    return stored ? rounding_of(assignment_.storage[id]) : Rounding::kNone;
  }

  std::vector<Operand> operands(LayerId id) const {
    std::vector<Operand> result;
    for (std::size_t i = 0; i < layer(id).inputs.size(); ++i) result.push_back(operand(id, i));
    return result;
  }

  std::vector<const Tensor*> constants(const Layer& l) const {
    std::vector<const Tensor*> result;
    for (TensorId input : l.inputs)
      result.push_back(input == kNone || !spec_.is_constant(input) ? nullptr : &spec_.value(input));
    return result;
  }

  /// The shape is known before anything runs.
  bool is_settled(TensorId id) const { return spec_.shape(id) && open_[id] == 0; }

  void describe_group(const Group& group) {
    std::size_t begin = 0;
    while (begin < group.layers.size()) {
      // A product with its epilogue, or a run of layers between products.
      std::size_t end = begin + 1;
      while (end < group.layers.size() && !is_product(group.layers[end])) ++end;
      const std::span<const LayerId> part(group.layers.data() + begin, end - begin);
      describe_part(part, group.layers.size() > 1);
      begin = end;
    }
  }

  void describe_part(std::span<const LayerId> part, bool grouped) {
    if (!is_product(part[0])) return describe_sequence(part);
    std::size_t epilogue = 1;
    // In attention, what is added to the scores may have more of them: other batches, more dimensions.
    const auto joins = [&](LayerId id) {
      if (spec_.shape(layer(id).outputs[0]) != spec_.shape(layer(part[0]).outputs[0])) return false;
      return layer(id).op->kind == OpKind::kPointwise || is_scale_shift(spec_, layer(id)) ||
             (grouped && is_stored_by_cast(id));
    };
    while (epilogue < part.size() && joins(part[epilogue])) ++epilogue;
    std::size_t done = describe_product(part.first(epilogue));
    if (done == 0) describe_layer(part[done++]);
    describe_sequence(part.subspan(done, epilogue - done));
    describe_sequence(part.subspan(epilogue));
  }

  /// A Cast in one group with the product whose results it stores: what is stored is rounded where it is stored.
  bool is_stored_by_cast(LayerId id) const { return ops::is_cast(layer(id)); }

  void describe_sequence(std::span<const LayerId> members) {
    if (members.empty()) return;
    if (auto kernel = make_program(members)) {
      kernels_.emplace_back(std::move(*kernel));
    } else if (members.size() == 1) {
      describe_layer(members[0]);
    } else {
      for (LayerId id : members) describe_sequence({&id, 1});
    }
  }

  void describe_layer(LayerId id) {
    const Layer& l = layer(id);
    LayerKernel kernel{id, operands(id), {}, false, {}, {}};
    kernel.accumulator = accumulator(id, kernel.operands);
    for (const Body& body : bodies_) {
      if (body.holder != id) continue;
      const auto inside = part_of(assignment_.precision, body, body.graph->network->num_all_layers());
      kernel.bodies.insert(kernel.bodies.end(), inside.begin(), inside.end());
    }
    for (TensorId output : l.outputs) {
      kernel.outputs.push_back(store(output, {&id, 1}));
      kernel.open |= output != kNone && open_[output] != 0;
    }
    kernels_.emplace_back(std::move(kernel));
  }

  // --- Programs
  // --------------------------------------------------------------------------------------------------------

  bool can_be_program(LayerId id) const {
    const Layer& l = layer(id);
    if (!l.has_one_output() || !spec_.shape(l.outputs[0]) || !spec_.is_held_as_float(l.outputs[0])) return false;
    if (is_scale_shift(spec_, l)) return true;
    const ops::ProgramSupport support = ops::program_support(l, constants(l));
    if (!support.supported || (l.op->kind != OpKind::kPointwise && row_dimensions(spec_, l) == 0)) return false;
    for (std::size_t i = 0; i < l.inputs.size(); ++i)
      if (l.inputs[i] != kNone && support.wants(i) &&
          (!is_settled(l.inputs[i]) || !spec_.is_held_as_float(l.inputs[i])))
        return false;
    return true;
  }

  bool works_on_rows(LayerId id) const {
    return layer(id).op->kind != OpKind::kPointwise && !is_scale_shift(spec_, layer(id));
  }

  /// The domain that all members share, if they do.
  std::optional<ProgramKernel> program_over(std::span<const LayerId> members) const {
    ProgramKernel result;
    result.layers.assign(members.begin(), members.end());
    for (LayerId id : members) {
      if (!can_be_program(id)) return std::nullopt;
      if (!works_on_rows(id)) continue;
      const int dims = row_dimensions(spec_, layer(id));
      const Shape& domain = shape(layer(id).inputs[0]);
      if (result.row_dims != 0 && (result.row_dims != dims || result.domain != domain)) return std::nullopt;
      result.row_dims = dims;
      result.domain = domain;
    }
    if (result.row_dims == 0) result.domain = shape(layer(members[0]).outputs[0]);
    // What a reduction yields of nothing is its operator's to say.
    if (result.row_dims > 0 && row_elements(result) == 0) return std::nullopt;
    const Shape rows = row_shape(result);
    for (LayerId id : members) {
      const Shape& out = shape(layer(id).outputs[0]);
      if (!works_on_rows(id) && out != result.domain && out != rows) return std::nullopt;
    }
    return result;
  }

  static std::int64_t row_elements(const ProgramKernel& kernel) {
    return num_elements(Shape(kernel.domain.end() - kernel.row_dims, kernel.domain.end()));
  }

  /// The domain with one element per row.
  static Shape row_shape(const ProgramKernel& kernel) {
    Shape shape = kernel.domain;
    for (std::size_t d = shape.size() - static_cast<std::size_t>(kernel.row_dims); d < shape.size(); ++d) shape[d] = 1;
    return shape;
  }

  std::optional<ProgramKernel> make_program(std::span<const LayerId> members) {
    auto kernel = program_over(members);
    if (!kernel) return std::nullopt;
    std::map<TensorId, Register> made;
    for (LayerId id : members)
      if (!append(*kernel, made, id)) return std::nullopt;
    add_outputs(*kernel, made, members);
    find_softmax(*kernel, made);
    return kernel;
  }

  void find_softmax(ProgramKernel& kernel, const std::map<TensorId, Register>& made) {
    const auto works = [&](LayerId id) { return works_on_rows(id); };
    const auto found = std::ranges::find_if(kernel.layers, works);
    if (found == kernel.layers.end() || layer(*found).op->function != Function::kSoftmax) return;
    if (std::any_of(found + 1, kernel.layers.end(), works) || kernel.outputs.size() != 1 ||
        kernel.outputs[0].source != made.at(layer(*found).outputs[0]))
      return;
    kernel.softmax_of = register_of(kernel, made, *found, 0, false);
  }

  void add_outputs(ProgramKernel& kernel, const std::map<TensorId, Register>& made, std::span<const LayerId> members) {
    for (LayerId id : members) {
      const TensorId output = layer(id).outputs[0];
      if (internal(output) && !is_read_outside(output, members)) continue;
      kernel.outputs.push_back({made.at(output), store(output, members)});
    }
  }

  bool is_read_outside(TensorId id, std::span<const LayerId> members) const {
    return std::ranges::any_of(spec_.consumers[id], [&](LayerId reader) {
      return !spec_.folded[reader] && std::ranges::find(members, reader) == members.end();
    });
  }

  /// Every load is made once.
  static Register load(ProgramKernel& kernel, const Load& what) {
    for (std::size_t r = 0; r < kernel.program.values.size(); ++r) {
      const Program::Value& value = kernel.program.values[r];
      if (value.kind == Program::Kind::kLoad && kernel.loads[value.load] == what) return static_cast<Register>(r);
    }
    kernel.loads.push_back(what);
    return kernel.program.load(static_cast<int>(kernel.loads.size()) - 1);
  }

  /// What operand `index` of a member is: a value of the program itself, or loaded.
  Register register_of(ProgramKernel& kernel, const std::map<TensorId, Register>& made, LayerId id, std::size_t index,
                       bool per_channel) {
    const TensorId input = layer(id).inputs[index];
    const auto found = made.find(input);
    if (found != made.end() && !per_channel) return found->second;
    Operand read = operand(id, index);
    std::optional<Quantization> q;
    if (read.scales == ScaleSource::kCalibrated) {
      q = read.quantization();
      read = {input, Rounding::kNone};
    }
    const Register value = load(kernel, {Load::Source::kTensor, read, kNone, per_channel});
    return q ? kernel.program.apply(Instruction::kFakeQuantize, value, -1, q->scale, q->is_unsigned() ? 1.0f : 0.0f)
             : value;
  }

  bool append(ProgramKernel& kernel, std::map<TensorId, Register>& made, LayerId id) {
    const Layer& l = layer(id);
    if (is_stored_by_cast(id)) {
      made[l.outputs[0]] = register_of(kernel, made, id, 0, false);
      return true;
    }
    if (is_scale_shift(spec_, l)) {
      const Rounding rounding = rounding_of(assignment_.precision[id]);
      const auto parameter = [&](Load::Source source) {
        return load(kernel, {source, {kNone, rounding == Rounding::kTF32 ? Rounding::kNone : rounding}, id, true});
      };
      const Register x = register_of(kernel, made, id, 0, false);
      const Register scaled = kernel.program.apply(Instruction::kMul, x, parameter(Load::Source::kScale));
      made[l.outputs[0]] = kernel.program.apply(Instruction::kAdd, scaled, parameter(Load::Source::kShift));
      return true;
    }
    const std::vector<const Tensor*> known = constants(l);
    const ops::ProgramSupport support = ops::program_support(l, known);
    if (!support.supported) return false;
    std::vector<ops::ProgramOperand> read(l.inputs.size());
    std::vector<Tensor> rounded(l.inputs.size());
    for (std::size_t i = 0; i < l.inputs.size(); ++i) {
      if (l.inputs[i] == kNone) continue;
      if (known[i] != nullptr) read[i].value = &(rounded[i] = single(operand(id, i)));
      if (support.wants(i)) read[i].reg = register_of(kernel, made, id, i, i > 0 && ops::has_channel_parameters(l));
    }
    const auto result = ops::append_instructions(kernel.program, l, read, row_elements(kernel));
    if (!result) return false;
    made[l.outputs[0]] = *result;
    return true;
  }

  /// What instructions see of a constant: a single number as it is read. Larger ones are loaded.
  Tensor single(const Operand& constant) const {
    const Tensor& value = spec_.value(constant.tensor);
    if (value.size() != 1 || value.type() != DataType::kFloat32) return value;
    return Tensor::of<float>(value.shape(),
                             {round_value(round_value(value.data<float>()[0], constant.first), constant.rounding)});
  }

  // --- Products
  // --------------------------------------------------------------------------------------------------------

  bool is_only_read_by(TensorId id, LayerId reader) const {
    return internal(id) && spec_.consumers[id].size() == 1 && spec_.consumers[id][0] == reader;
  }

  /// members[0] is the product, the others are its epilogue as far as they have instructions. How many are described.
  std::size_t describe_product(std::span<const LayerId> members) {
    const LayerId id = members[0];
    const Layer& l = layer(id);
    if (!l.has_one_output() || !spec_.shape(l.outputs[0]) || !spec_.is_held_as_float(l.outputs[0])) return 0;
    if (!ops::is_convolution(l) && !ops::matrix_form(l)) return 0;
    for (TensorId input : present(l.inputs))
      if ((!is_settled(input) || !spec_.is_held_as_float(input))) return 0;
    ProductKernel kernel{id, operands(id)};
    kernel.elements = reads_elements(readings_[id]);
    kernel.accumulator = accumulator(id, kernel.operands);
    kernel.result = l.outputs[0];
    std::span<const LayerId> epilogue = members.subspan(1);
    if (!epilogue.empty() && is_only_read_by(kernel.result, epilogue[0]) && takes_normalization(id, epilogue[0])) {
      kernel.normalization = epilogue[0];
      kernel.result = layer(epilogue[0]).outputs[0];
      epilogue = epilogue.subspan(1);
    }
    const auto has_instructions = [&](LayerId member) { return is_stored_by_cast(member) || can_be_program(member); };
    epilogue = epilogue.first(
        static_cast<std::size_t>(std::ranges::find_if_not(epilogue, has_instructions) - epilogue.begin()));
    const std::size_t done = static_cast<std::size_t>(epilogue.data() + epilogue.size() - members.data());
    ProgramKernel& program = kernel.epilogue;
    program.layers.assign(epilogue.begin(), epilogue.end());
    program.domain = shape(kernel.result);
    std::map<TensorId, Register> made;
    made[kernel.result] = load(program, {Load::Source::kResult});
    if (is_attention_ && multiplies_exponentials(spec_, assignment_, id)) {
      const Operand sums{.tensor = kernel.operands[0].tensor, .row_sums = true};
      leave_exponentials(sums.tensor);
      if (program.layers.empty()) program.layers = {id};
      made[kernel.result] =
          program.program.apply(Instruction::kDiv, made[kernel.result], load(program, {.operand = sums}));
    }
    for (LayerId member : epilogue)
      if (!append(program, made, member))
        throw InternalError(fmt::format("layer '{}' was fused but has no instructions", layer(member).name));
    if (!internal(kernel.result) || is_read_outside(kernel.result, epilogue))
      program.outputs.push_back({made.at(kernel.result), store(kernel.result, epilogue)});
    add_outputs(program, made, epilogue);
    kernels_.emplace_back(std::move(kernel));
    return done;
  }

  /// The softmax before this second product of an attention leaves its exponentials and the sums of their rows.
  void leave_exponentials(TensorId read) {
    for (KernelDescription& each : kernels_) {
      auto* softmax = std::get_if<ProgramKernel>(&each);
      if (softmax == nullptr) continue;
      const auto left = std::ranges::find(softmax->outputs, read, [](const auto& o) { return o.store.tensor; });
      if (left == softmax->outputs.end()) continue;
      // The last instructions of a softmax: exponentials times the reciprocals of their sums.
      std::vector<Program::Value>& instructions = softmax->program.values;
      const bool ends = left->source + 1 == static_cast<Register>(instructions.size());
      const Program::Value product = instructions[left->source];
      left->source = product.a;
      softmax->outputs.push_back({instructions[product.b].a, {.tensor = read, .row_sums = true}});
      if (ends) instructions.resize(instructions.size() - 2);
      return;
    }
    throw InternalError(fmt::format("the softmax that makes '{}' has no program", network_.tensor(read).name));
  }

  /// The BatchNormalization goes into the constant weights and bias of the convolution before it. Weights that are
  /// integers in the file stay what they are.
  bool takes_normalization(LayerId convolution, LayerId normalization) const {
    const Layer& l = layer(convolution);
    if (!ops::is_convolution(l) || !is_scale_shift(spec_, layer(normalization)) || !has_constant_parameters(spec_, l))
      return false;
    return !reads_elements(readings_[convolution]) ||
           !dequantized_weights(spec_, l.inputs[1], weight_channel_axis(spec_, l), output_channels(spec_, l));
  }

  const Specialization& spec_;
  const Network& network_;
  const Assignment& assignment_;
  const std::vector<Body> bodies_;
  const Readings readings_;
  Schedule schedule_;
  std::vector<KernelDescription> kernels_;  ///< Of the group at hand.
  bool is_attention_ = false;               ///< It is one.
  const IdMap<TensorId, char> open_;
};

}  // namespace

Schedule describe(const Specialization& spec, const Assignment& assignment, Grouping grouping) {
  return Describer(spec, assignment, std::move(grouping)).run();
}

}  // namespace ulpscope
