#include "backend/cuda/generated_sources.h"

#include <mutex>
#include <optional>
#include <type_traits>
#include <unordered_map>

#include "backend/cuda/kernel_cache.h"

namespace ulpscope::cuda {
namespace {

/// The bytes of a description, by which it is found: different descriptions have different ones. Floats count bit by
/// bit. Structures are taken apart by name, so that a member that is new is not forgotten here.
class Description {
 public:
  template <typename... Parts>
  explicit Description(std::string_view generator, const Parts&... parts) {
    add(generator);
    (add(parts), ...);
  }
  std::string bytes() && { return std::move(bytes_); }

 private:
  template <typename T>
  static constexpr bool kPlain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

  template <typename T>
    requires kPlain<T>
  void add(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void add(std::span<const T> values) {
    add(values.size());
    if constexpr (kPlain<T>)
      bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    else
      for (const T& value : values) add(value);
  }
  template <typename T>
  void add(const std::vector<T>& values) {
    add(std::span<const T>(values));
  }
  template <typename T, std::size_t N>
  void add(const std::array<T, N>& values) {
    for (const T& value : values) add(value);
  }
  template <typename T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  void add(std::string_view text) {
    add(text.size());
    bytes_ += text;
  }
  template <typename... Members>
  void add_all(const Members&... members) {
    (add(members), ...);
  }

  void add(const Program::Value& value) {
    const auto& [kind, load, constant, instruction, a, b, p, q] = value;
    add_all(kind, load, constant, instruction, a, b, p, q);
  }
  void add(const Program& program) {
    const auto& [values] = program;
    add(values);
  }
  void add(const Quantization& quantization) {
    const auto& [scale, elements] = quantization;
    add_all(scale, elements);
  }
  void add(const ProgramInput& input) {
    const auto& [type, strides, rounding, alignment] = input;
    add_all(type, strides, rounding, alignment);
  }
  void add(const ProgramOutput& output) {
    const auto& [source, type, strides, rounding, alignment, quantization] = output;
    add_all(source, type, strides, rounding, alignment, quantization);
  }
  void add(const ProgramSpec& spec) {
    const auto& [domain, row_dims, program, inputs, outputs] = spec;
    add_all(domain, row_dims, program, inputs, outputs);
  }
  void add(const StridedTensor& tensor) {
    const auto& [type, shape, strides] = tensor;
    add_all(type, shape, strides);
  }
  void add(const AttentionSpec::Scores& scores) {
    const auto& [program, result, loads, rounding] = scores;
    add_all(program, result, loads, rounding);
  }
  void add(const AttentionSpec::Elements& elements) {
    const auto& [a, b] = elements;
    add_all(a, b);
  }
  void add(const AttentionSpec& spec) {
    const auto& [batch, heads, queries, keys, depth, value_depth, type, stored, q, k, v, out, alignment, q_factor,
                 k_factor, scores, score_elements, value_elements, nan_is_zero, flash] = spec;
    add_all(batch, heads, queries, keys, depth, value_depth, type, stored, q, k, v, out, alignment, q_factor, k_factor,
            scores, score_elements, value_elements, nan_is_zero, flash);
  }
  void add(const ConvolutionStep& step) {
    const auto& [kind, type] = step;
    add_all(kind, type);
  }
  void add(const ConvolutionSpec& spec) {
    const auto& [input, weights, output, strides, dilations, pads_begin, pads_end, groups, operands, unsigned_weights,
                 stored, tf32, steps] = spec;
    add_all(input, weights, output, strides, dilations, pads_begin, pads_end, groups, operands, unsigned_weights,
            stored, tf32, steps);
  }
  void add(const MatrixOperand& operand) {
    const auto& [row_stride, column_stride, batch_stride] = operand;
    add_all(row_stride, column_stride, batch_stride);
  }
  void add(const MatrixProductSpec& spec) {
    const auto& [m, n, k, batch, operands, result, tf32, fast, a, b, d, bias, residual, relu, alignment] = spec;
    add_all(m, n, k, batch, operands, result, tf32, fast, a, b, d, bias, residual, relu, alignment);
  }
  void add(const FusedProductSpec& spec) {
    const auto& [product, program, row_strides] = spec;
    add_all(product, program, row_strides);
  }
  void add(const ProductTile& tile) {
    const auto& [rows, columns, cluster] = tile;
    add_all(rows, columns, cluster);
  }

  std::string bytes_;
};

/// What was made, by description; all of it goes when it becomes too much, and is made again when it is asked for.
class Memo {
 public:
  template <typename Make>
  SharedProduct get(std::string key, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = made_.find(key); found != made_.end()) return found->second;
    }
    SharedProduct made = make();
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = key.size() + (made.source == nullptr ? 0 : made.source->source.size());
    if (bytes_ + bytes > kMostBytes) {
      made_.clear();
      bytes_ = 0;
    }
    // Another thread may have been faster: one source serves all.
    const auto [entry, is_new] = made_.emplace(std::move(key), std::move(made));
    if (is_new) bytes_ += bytes;
    return entry->second;
  }

 private:
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  std::mutex mutex_;
  std::unordered_map<std::string, SharedProduct> made_;
  std::size_t bytes_ = 0;
};

Memo& memo() {
  static Memo sources;
  return sources;
}

}  // namespace

NamedSource::NamedSource(KernelSource made) : KernelSource(std::move(made)), hash(hash_of(source)) {}

SharedSource shared(KernelSource source) { return std::make_shared<const NamedSource>(std::move(source)); }

SharedSource shared_program(const ProgramSpec& spec) {
  return memo()
      .get(Description("program", spec).bytes(), [&] { return SharedProduct{shared(program_source(spec))}; })
      .source;
}

SharedSource shared_copy(const StridedTensor& in, const StridedTensor& out) {
  return memo()
      .get(Description("copy", in, out).bytes(), [&] { return SharedProduct{shared(copy_source(in, out))}; })
      .source;
}

SharedSource shared_attention(const AttentionSpec& spec, int warp_group_processors) {
  return memo()
      .get(Description("attention", spec, warp_group_processors).bytes(),
           [&] {
             auto source = attention_source(spec, warp_group_processors);
             return source ? SharedProduct{shared(std::move(*source))} : SharedProduct{};
           })
      .source;
}

SharedSource shared_convolution(const ConvolutionSpec& spec, const Program& epilogue,
                                std::span<const ProgramInput> loads, std::span<const ProgramOutput> outputs) {
  return memo()
      .get(Description("convolution", spec, epilogue, loads, outputs).bytes(),
           [&] { return SharedProduct{shared(convolution_source(spec, epilogue, loads, outputs))}; })
      .source;
}

SharedProduct shared_product(const FusedProductSpec& spec, const ProductTile& tile, int processors) {
  return memo().get(Description("product", spec, tile, processors).bytes(), [&] {
    FusedProductKernel made = fused_product_source(spec, tile, processors);
    return SharedProduct{shared(std::move(made.source)), made.a, made.b};
  });
}

}  // namespace ulpscope::cuda
