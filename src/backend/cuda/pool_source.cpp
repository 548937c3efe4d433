#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/element_source.h"
#include "backend/cuda/movement_source.h"
#include "backend/cuda/moving.h"
#include "ops/window.h"

namespace ulpscope::cuda {
namespace {

/// Writes one pooling kernel. A thread computes one place of `vector` channels, or of one.
class PoolWriter {
 public:
  PoolWriter(const StridedTensor& in, const StridedTensor& out, const PoolWindow& window,
             const std::vector<std::int64_t>& pads_end, Rounding load, Rounding store)
      : in_(in),
        out_(out),
        window_(window),
        pads_end_(pads_end),
        load_(load),
        store_(store),
        order_(memory_order(out.strides)) {
    for (std::size_t d : order_) dims_.push_back({out.shape[d], {out.strides[d]}});
    wide_ = needs_wide(dims_) || needs_wide(dimensions_of(in.shape, {&in.strides}));
    while (vector_ > 1 && !fits(vector_)) vector_ /= 2;
  }

  KernelSource write() {
    constexpr int kThreads = 128;
    const std::int64_t threads = count_of(dims_) / vector_;
    std::string text = prelude() + moving_header(2, kThreads) +
                       fmt::format("const {0} q = ({0})blockIdx.x * {1}u + threadIdx.x;\nif (q >= {2}) return;\n",
                                   wide_ ? "i64" : "u32", kThreads, literal(threads, wide_));
    if (vector_ == 1) {
      text += element("q", 1, false);
    } else {
      text += fmt::format("if ((u64)p0 % {} == 0 && (u64)p1 % {} == 0) {{\n", word(in_), word(out_)) +
              element("q", vector_, true) + "} else {\n" + fmt::format("for (int v = 0; v < {0}; ++v) {{\n", vector_) +
              element(fmt::format("q * {} + v", vector_), 1, false) + "}\n}\n";
    }
    KernelSource source{text + "}\n"};
    source.block = kThreads;
    source.grid[0] = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
    return source;
  }

 private:
  int bytes(const StridedTensor& t) const { return static_cast<int>(size_of(t.type)); }
  int word(const StridedTensor& t) const { return std::min(16, vector_ * bytes(t)); }

  bool fits(int vector) const {
    if (order_.empty() || order_.back() != 1 || out_.shape[1] % vector != 0) return false;
    for (const StridedTensor* t : {&in_, &out_}) {
      if (t->strides[1] != 1) return false;
      const std::int64_t unit = std::min(16, vector * bytes(*t));
      for (std::size_t d = 0; d < t->shape.size(); ++d)
        if (d != 1 && t->shape[d] > 1 && t->strides[d] * bytes(*t) % unit != 0) return false;
    }
    return true;
  }

  /// The name of the coordinate of a dimension of the output.
  std::string coordinate(std::size_t dimension) const {
    const auto place = std::find(order_.begin(), order_.end(), dimension) - order_.begin();
    return fmt::format("(i64)x{}", place);
  }

  /// Loops over the window around `body`, which finds the input's element at `at`.
  std::string window_loops(const std::string& body) const {
    std::string open, close;
    std::string offset =
        fmt::format("{} * {}ll + {} * {}ll", coordinate(0), in_.strides[0], coordinate(1), in_.strides[1]);
    for (std::size_t d = 0; d < window_.kernel.size(); ++d) {
      open += fmt::format(
          "for (int k{0} = 0; k{0} < {1}; ++k{0}) {{\nconst i64 y{0} = {2} * {3}ll + k{0} * {4}ll - {5}ll;\n"
          "if (y{0} < 0 || y{0} >= {6}ll) continue;\n",
          d, window_.kernel[d], coordinate(d + 2), window_.strides[d], window_.dilations[d], window_.pads_begin[d],
          in_.shape[d + 2]);
      offset += fmt::format(" + y{} * {}ll", d, in_.strides[d + 2]);
      close += "}\n";
    }
    return open + fmt::format("const i64 at = {};\n", offset) + body + close;
  }

  /// How many positions of the window lie in the input or its pads, along all dimensions.
  std::string divisor_code() const {
    std::string text = "int places = 1;\n";
    for (std::size_t d = 0; d < window_.kernel.size(); ++d)
      text += fmt::format(
          "{{ int n = 0; for (int k = 0; k < {}; ++k) n += {} * {}ll + k * {}ll - {}ll < {}ll; places *= n; }}\n",
          window_.kernel[d], coordinate(d + 2), window_.strides[d], window_.dilations[d], window_.pads_begin[d],
          in_.shape[d + 2] + pads_end_[d]);
    return text;
  }

  std::string element(const std::string& index, int vector, bool aligned) const {
    const std::string each = fmt::format("#pragma unroll\nfor (int e = 0; e < {}; ++e) ", vector);
    const std::string value = rounded_code(load_, "x[e]", in_.type);
    const bool in_double = window_.average && ops::averages_in_double(window_.kernel);
    std::string text = coordinate_code(dims_, index, "x", vector, wide_) +
                       fmt::format("{0} s[{1}];\n{2}s[e] = {3};\nfloat r[{1}];\nint count = 0;\n",
                                   in_double ? "double" : "float", vector, each,
                                   window_.average ? "0.0f" : "-INFINITE");
    text += window_loops(
        fmt::format("float x[{0}];\nload<{1}, {0}, {2}>(p0 + at * {3}, x);\n", vector, type_code(in_.type),
                    aligned ? word(in_) : bytes(in_), bytes(in_)) +
        each +
        (window_.average ? fmt::format("s[e] += {};\n", value) : fmt::format("s[e] = larger(s[e], {});\n", value)) +
        "++count;\n");
    if (window_.average) {
      if (window_.count_pads) text += divisor_code();
      text += each + fmt::format("r[e] = {0} == 0 ? 0.0f : (float)s[e] / (float){0};\n",
                                 window_.count_pads ? "places" : "count");
    } else {
      text += each + "r[e] = s[e];\n";
    }
    const ProgramOutput stored{.type = out_.type, .rounding = store_};
    text += each + fmt::format("r[e] = {};\n", stored_code(stored, "r[e]"));
    return text + fmt::format("store<{}, {}, {}>(p1 + (i64)({}) * {}, r);\n", type_code(out_.type), vector,
                              aligned ? word(out_) : bytes(out_), offset_code(dims_, 0, "x", wide_), bytes(out_));
  }

  const StridedTensor &in_, &out_;
  const PoolWindow& window_;
  const std::vector<std::int64_t>& pads_end_;
  Rounding load_, store_;
  std::vector<std::size_t> order_;  ///< Dimensions of the output, the outermost in memory first.
  Dimensions dims_;                 ///< In that order; one operand, the output.
  int vector_ = 8;
  bool wide_ = false;
};

}  // namespace

KernelSource pool_source(const StridedTensor& in, const StridedTensor& out, const PoolWindow& window,
                         const std::vector<std::int64_t>& pads_end, Rounding load, Rounding store) {
  return PoolWriter(in, out, window, pads_end, load, store).write();
}

}  // namespace ulpscope::cuda
