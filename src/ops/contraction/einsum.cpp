// Einstein's summation convention.
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/adjoint_values.h"
#include "ops/contraction/einsum_form.h"
#include "ops/elementwise.h"
#include "ops/fail.h"
#include "ops/movement.h"
#include "ops/multiply_adds.h"

namespace ulpscope::ops {
namespace {

/// One label per axis; the axes of an ellipsis, counted from the right, have the labels kEllipsis - 0, - 1, ...
using Labels = std::vector<int>;
constexpr int kEllipsis = -1;

struct Equation {
  std::vector<Labels> inputs;
  Labels output;
  std::vector<std::int64_t> sizes;  ///< Of each index: those of the output in its order, then those summed over.
  std::vector<std::vector<std::size_t>> axes;      ///< Per input and axis: its index.
  std::vector<std::vector<std::int64_t>> strides;  ///< Per input, per index, in elements.
};

Labels parse_term(const Layer& layer, const std::string& term, std::size_t ellipsis_rank) {
  Labels labels;
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (term[i] == '.') {
      if (term.compare(i, 3, "...") != 0) fail(layer, "'{}' has a dot that is not part of '...'", term);
      for (std::size_t k = ellipsis_rank; k-- > 0;) labels.push_back(kEllipsis - static_cast<int>(k));
      i += 2;
    } else if ((term[i] >= 'a' && term[i] <= 'z') || (term[i] >= 'A' && term[i] <= 'Z')) {
      labels.push_back(term[i]);
    } else {
      fail(layer, "expected letters in the term '{}', got '{}'", term, term[i]);
    }
  }
  return labels;
}

Equation parse_equation(const Layer& layer, const std::vector<Shape>& shapes) {
  std::string text = layer.attributes.text("equation", "");
  std::erase(text, ' ');
  const std::size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  std::vector<std::string> terms{""};
  for (char c : left) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  }
  if (terms.size() != shapes.size())
    fail(layer, "equation '{}' has {} terms for {} inputs", text, terms.size(), shapes.size());

  Equation e;
  std::size_t widest = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const bool dots = terms[i].find('.') != std::string::npos;
    const std::size_t letters = dots ? terms[i].size() - std::min<std::size_t>(3, terms[i].size()) : terms[i].size();
    if (shapes[i].size() < letters || (!dots && shapes[i].size() != letters))
      fail(layer, "term '{}' does not fit an input of shape {}", terms[i], to_string(shapes[i]));
    const std::size_t rank = dots ? shapes[i].size() - letters : 0;
    widest = std::max(widest, rank);
    e.inputs.push_back(parse_term(layer, terms[i], rank));
  }
  if (arrow != std::string::npos) {
    e.output = parse_term(layer, text.substr(arrow + 2), widest);
  } else {  // The ellipsis, then every letter that occurs once, in alphabetical order.
    for (std::size_t k = widest; k-- > 0;) e.output.push_back(kEllipsis - static_cast<int>(k));
    for (int letter = 'A'; letter <= 'z'; ++letter)
      if (std::ranges::count(left, static_cast<char>(letter)) == 1 && std::isalpha(letter)) e.output.push_back(letter);
  }

  Labels order = e.output;
  for (const Labels& labels : e.inputs)
    for (int label : labels)
      if (std::ranges::find(order, label) == order.end()) order.push_back(label);
  e.sizes.assign(order.size(), 1);
  std::vector<bool> used(order.size(), false);
  const auto index_of = [&](int label) {
    return static_cast<std::size_t>(std::ranges::find(order, label) - order.begin());
  };
  e.axes.resize(e.inputs.size());
  for (std::size_t i = 0; i < e.inputs.size(); ++i)
    for (std::size_t axis = 0; axis < e.inputs[i].size(); ++axis) {
      const std::size_t index = e.axes[i].emplace_back(index_of(e.inputs[i][axis]));
      const std::int64_t size = shapes[i][axis];
      if (size != 1 && e.sizes[index] != 1 && size != e.sizes[index])
        fail(layer, "equation '{}': an index has the sizes {} and {}", text, e.sizes[index], size);
      if (size != 1) e.sizes[index] = size;
      used[index] = true;
    }
  for (std::size_t i = 0; i < e.output.size(); ++i)
    if (!used[i] && e.output[i] > kEllipsis)
      fail(layer,
           fmt::format("equation '{}': index '{}' of the output is in no input", text, static_cast<char>(e.output[i])));
  for (std::size_t i = 0; i < e.inputs.size(); ++i) {
    const auto dense = strides_of(shapes[i]);
    std::vector<std::int64_t> strides(order.size(), 0);
    for (std::size_t axis = 0; axis < dense.size(); ++axis)
      if (shapes[i][axis] != 1) strides[e.axes[i][axis]] += dense[axis];
    e.strides.push_back(std::move(strides));
  }
  return e;
}

void infer_einsum(InferContext& ctx) {
  for (int i = 1; i < ctx.num_inputs(); ++i) require_type_of_first(ctx, {i});
  std::vector<Shape> shapes;
  for (int i = 0; i < ctx.num_inputs(); ++i) shapes.push_back(ctx.shape(i));
  const Equation e = parse_equation(ctx.layer(), shapes);
  ctx.set_shape(0, Shape(e.sizes.begin(), e.sizes.begin() + static_cast<std::ptrdiff_t>(e.output.size())));
}

/// Of long sums float32 would keep the first digits only.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, float>, double, T>;

/// Sums the products of the operands over the indices from `first` on, beginning at `offsets`.
template <typename T>
Sum<T> sum_products(const Equation& e, const std::vector<const T*>& data, std::vector<std::int64_t>& offsets,
                    std::size_t first) {
  const std::size_t last = e.sizes.size();
  if (first == last) {
    T value = data[0][offsets[0]];
    for (std::size_t k = 1; k < data.size(); ++k) value = times(value, data[k][offsets[k]]);
    return value;
  }
  Sum<T> sum{};
  const std::int64_t size = e.sizes[first];
  if (first + 1 == last && data.size() == 2) {
    const T* a = data[0] + offsets[0];
    const T* b = data[1] + offsets[1];
    const std::int64_t step_a = e.strides[0][first], step_b = e.strides[1][first];
    for (std::int64_t i = 0; i < size; ++i) sum = plus(sum, static_cast<Sum<T>>(times(a[i * step_a], b[i * step_b])));
    return sum;
  }
  for (std::int64_t i = 0; i < size; ++i) {
    sum = plus(sum, sum_products(e, data, offsets, first + 1));
    for (std::size_t k = 0; k < data.size(); ++k) offsets[k] += e.strides[k][first];
  }
  for (std::size_t k = 0; k < data.size(); ++k) offsets[k] -= size * e.strides[k][first];
  return sum;
}

constexpr std::int64_t kLanes = 16;
using LaneSums = std::array<double, kLanes>;

/// sums[j] += a[i] * b[i][j] for every i, one after the other: a product is rounded to float32, a sum is not.
ULPSCOPE_VECTOR_CLONES void add_products(const float* a, std::int64_t a_step, const float* b, std::int64_t b_step,
                                         std::int64_t count, double* sums) {
  double total[kLanes];
  std::copy_n(sums, kLanes, total);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t j = 0; j < kLanes; ++j) {
      const float product = a[i * a_step] * b[i * b_step + j];
      total[j] += static_cast<double>(product);
    }
  std::copy_n(total, kLanes, sums);
}

/// sum_products() for so many elements of the last index of the output, which lie side by side in operand 1 and repeat
/// those of operand 0.
LaneSums sum_lanes(const Equation& e, const float* a, const float* b, std::size_t first) {
  LaneSums sums{};
  const std::size_t last = e.sizes.size();
  if (first >= last) {
    add_products(a, 0, b, 0, 1, sums.data());
  } else if (first + 1 == last) {
    add_products(a, e.strides[0][first], b, e.strides[1][first], e.sizes[first], sums.data());
  } else {
    for (std::int64_t i = 0; i < e.sizes[first]; ++i) {
      const LaneSums inner = sum_lanes(e, a + i * e.strides[0][first], b + i * e.strides[1][first], first + 1);
      for (std::size_t j = 0; j < inner.size(); ++j) sums[j] += inner[j];
    }
  }
  return sums;
}

/// The same numbers, with the elements of this index side by side; `strides` become those of the result.
Tensor side_by_side(const Tensor& operand, const Equation& e, std::size_t index, std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> dense(strides.size(), 0);
  Shape shape;
  std::vector<std::int64_t> from, to;
  std::int64_t count = 1;
  const auto add = [&](std::size_t i) {
    if (strides[i] == 0) return;
    shape.push_back(e.sizes[i]);
    from.push_back(strides[i]);
    to.push_back(dense[i] = count);
    count *= e.sizes[i];
  };
  add(index);
  for (std::size_t i = strides.size(); i-- > 0;)
    if (i != index) add(i);
  Tensor result(operand.type(), {count});
  copy_strided(operand.type(), operand.raw(), from, result.raw(), to, shape);
  strides = std::move(dense);
  return result;
}

/// Two operands of which one alone has the last index of the output, as in products of matrices: many elements at a
/// time, with the same bits. False: it is none of these.
bool run_lanes(Equation e, std::vector<Tensor> operands, float* out, std::int64_t size) {
  if (operands.size() != 2 || e.output.empty() || size == 0) return false;
  const std::size_t last = e.output.size() - 1;
  if (e.strides[0][last] != 0) {
    std::swap(operands[0], operands[1]);
    std::swap(e.strides[0], e.strides[1]);
  }
  const std::int64_t width = e.sizes[last];
  if (e.strides[0][last] != 0 || e.strides[1][last] == 0 || width < kLanes) return false;
  if (e.strides[1][last] != 1) operands[1] = side_by_side(operands[1], e, last, e.strides[1]);
  const std::int64_t blocks = (width + kLanes - 1) / kLanes;
  parallel_each(size / width * blocks, 16, [&](std::int64_t i) {
    // The last block overlaps with the one ahead.
    const std::int64_t at = std::min(i % blocks * kLanes, width - kLanes);
    const float *a = operands[0].data<float>(), *b = operands[1].data<float>() + at;
    std::int64_t rest = i / blocks;
    for (std::size_t axis = last; axis-- > 0; rest /= e.sizes[axis]) {
      a += rest % e.sizes[axis] * e.strides[0][axis];
      b += rest % e.sizes[axis] * e.strides[1][axis];
    }
    std::ranges::transform(sum_lanes(e, a, b, e.output.size()), out + i / blocks * width + at,
                           [](double sum) { return static_cast<float>(sum); });
  });
  return true;
}

void run_einsum(KernelContext& ctx) {
  // Integers wrap around: in 64 bits, as in fewer.
  const DataType type = ctx.input(0).type(), wide = is_integer(type) ? DataType::kInt64 : type;
  std::vector<Shape> shapes;
  std::vector<Tensor> operands;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    shapes.push_back(ctx.input(i).shape());
    operands.push_back(type == wide ? ctx.input(i) : ctx.input(i).cast(wide));
  }
  const Equation e = parse_equation(ctx.layer(), shapes);
  if (operands.size() == 1 && e.sizes.size() == e.output.size())  // Nothing is summed over: elements move.
    return copy_strided(type, ctx.input(0).raw(), e.strides[0], ctx.output(0).raw(), ctx.output(0).shape());
  if (wide == DataType::kFloat32 && run_lanes(e, operands, ctx.output(0).data<float>(), ctx.output(0).size())) return;
  Tensor sums = type == wide ? ctx.output(0) : Tensor(wide, ctx.output(0).shape());
  with_type(TypeList<float, double, std::int64_t>{}, ctx, wide, [&]<typename T>(T) {
    std::vector<const T*> data;
    for (const Tensor& operand : operands) data.push_back(operand.data<T>());
    T* out = sums.data<T>();
    parallel_for(sums.size(), 256, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int64_t> offsets(data.size());
      for (std::int64_t i = begin; i < end; ++i) {
        std::ranges::fill(offsets, 0);
        std::int64_t rest = i;
        for (std::size_t axis = e.output.size(); axis-- > 0; rest /= e.sizes[axis])
          for (std::size_t k = 0; k < data.size(); ++k) offsets[k] += rest % e.sizes[axis] * e.strides[k][axis];
        out[i] = static_cast<T>(sum_products(e, data, offsets, e.output.size()));
      }
    });
  });
  if (type != wide) ctx.set_output(0, sums.cast(type));
}

void adjoint_einsum(AdjointContext& ctx) {
  std::vector<Shape> shapes;
  for (int i = 0; i < ctx.num_inputs(); ++i) shapes.push_back(ctx.input_shape(i));
  const Equation e = parse_equation(ctx.layer(), shapes);
  // Every label as a letter of its own, also those of an ellipsis.
  Labels known;
  const auto term = [&](const Labels& labels) {
    std::string letters;
    for (int label : labels) {
      auto found = std::ranges::find(known, label);
      if (found == known.end()) found = known.insert(known.end(), label);
      const auto number = static_cast<int>(found - known.begin());
      letters += static_cast<char>(number < 26 ? 'a' + number : 'A' + number - 26);
    }
    return letters;
  };
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    if (!ctx.wants(i)) continue;
    const Labels& own = e.inputs[static_cast<std::size_t>(i)];
    std::string left = term(e.output);
    std::vector<TensorId> factors{ctx.gradient(0)};
    for (int k = 0; k < ctx.num_inputs(); ++k) {
      if (k == i) continue;
      left += ',';
      left += term(e.inputs[static_cast<std::size_t>(k)]);
      factors.push_back(ctx.input(k));
    }
    const std::string target = term(own);
    // Diagonals would have to be written to, and there are only so many letters.
    if (std::set<char>(target.begin(), target.end()).size() != target.size() || known.size() > 52) {
      ctx.leave_out(i);
      continue;
    }
    // An index that only this input has was summed over: its gradient is the same all along.
    std::string present;
    Shape shape;
    for (char letter : target)
      if (left.find(letter) != std::string::npos) present += letter;
    const Value found{&ctx, ctx.add("Einsum", factors, {{"equation", fmt::format("{}->{}", left, present)}})};
    for (std::size_t d = 0, next = 0; d < target.size(); ++d)
      shape.push_back(present.find(target[d]) == std::string::npos ? 1 : found.shape()[next++]);
    // Sizes of 1 meet larger ones in both directions.
    const Shape& wanted = ctx.input_shape(i);
    Shape less = shape;
    for (std::size_t d = 0; d < shape.size(); ++d) less[d] = wanted[d] == 1 ? 1 : shape[d];
    ctx.set(i, broadcast_to(sum_to(reshape(found, shape), less), wanted).id);
  }
}

}  // namespace

std::optional<EinsumForm> einsum_form(const Layer& layer, const std::vector<Shape>& shapes) {
  if (layer.op->run != run_einsum) return std::nullopt;
  Equation e = parse_equation(layer, shapes);
  return EinsumForm{std::move(e.sizes), e.output.size(), std::move(e.axes)};
}

std::optional<EinsumRoles> roles_of(const EinsumForm& form, const std::vector<Shape>& shapes) {
  if (form.axes.size() != 2) return std::nullopt;
  EinsumRoles roles;
  for (std::size_t index = 0; index < form.sizes.size(); ++index) {
    // An axis of size 1 repeats its element: such an operand does not have the index.
    const auto count = [&](std::size_t i) {
      int found = 0;
      for (std::size_t axis = 0; axis < shapes[i].size(); ++axis)
        found += form.axes[i][axis] == index && shapes[i][axis] == form.sizes[index] ? 1 : 0;
      return found;
    };
    const int a = count(0), b = count(1);
    if (a > 1 || b > 1) return std::nullopt;
    if (index >= form.results && (a == 0 || b == 0)) return std::nullopt;
    (index >= form.results ? roles.sums : a == 0 ? roles.columns : b == 0 ? roles.rows : roles.batch).push_back(index);
  }
  return roles;
}

OpTable einsum() {
  return {
      // Einsum, ai.onnx 12: Einstein's summation convention, as numpy.einsum reads it.
      make_op({.name = "Einsum",
               .since_version = 12,
               .inputs = {1, kAnyNumber},
               .types = {kNumbers},
               .kind = OpKind::kContraction,
               .multiply_adds = multiply_adds_of_matmul},
              infer_einsum, run_einsum, adjoint_einsum),
  };
}

}  // namespace ulpscope::ops
