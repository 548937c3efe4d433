// oneDNN's primitives as kernels: what products and convolutions share.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cpu/product.h"
#include "backend/cpu/thread_memory.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace ulpscope::cpu::onednn {

using dnnl::memory;
using Dims = memory::dims;
using DataKind = memory::data_type;

inline const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

inline dnnl::stream& stream_of_thread() {
  thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

/// Of float32, int8 or uint8.
inline memory::data_type data_kind(DataType type) {
  return type == DataType::kInt8 ? DataKind::s8 : type == DataType::kUInt8 ? DataKind::u8 : DataKind::f32;
}

inline memory::desc strided(const Dims& dims, const Dims& strides) {
  return memory::desc(dims, DataKind::f32, strides);
}

struct Packed {
  std::shared_ptr<std::byte> bytes;
  dnnl::memory memory;
};

/// `offset`: elements of `values` before the first one of `from`.
inline PreparedObject pack(const memory::desc& from, const Tensor& values, const memory::desc& to,
                           std::int64_t offset = 0) {
  memory source(from, cpu_engine(), const_cast<float*>(static_cast<const float*>(values.raw())) + offset);
  const std::shared_ptr<std::byte> bytes = allocate_elements(to.get_size());
  memory packed(to, cpu_engine(), bytes.get());
  if (from == to && to.get_size() == values.bytes()) {
    std::memcpy(packed.get_data_handle(), values.raw(), values.bytes());
  } else {
    dnnl::reorder(source, packed).execute(stream_of_thread(), source, packed);
    stream_of_thread().wait();
  }
  MappedFile::release(values.raw(), values.bytes());
  return {std::make_shared<Packed>(Packed{bytes, packed}), to.get_size()};
}

/// oneDNN's own scratchpad belongs to the thread that makes a primitive; ours is the thread's that runs it.
inline dnnl::primitive_attr with_own_scratchpad(dnnl::primitive_attr attributes = {}) {
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

inline void* scratchpad_of_thread(std::size_t bytes) {
  thread_local ThreadMemory memory;
  return memory.get(bytes);
}

/// Runs one primitive; arguments beyond the constants are set per run.
template <typename Primitive>
class PrimitiveKernel final : public Kernel {
 public:
  struct Argument {
    int index;  ///< DNNL_ARG_...
    memory::desc desc;
    std::int64_t offset = 0;  ///< Elements before the first one of `desc`.
  };

  PrimitiveKernel(typename Primitive::primitive_desc desc, std::vector<Argument> inputs, Argument output,
                  std::unordered_map<int, PreparedSource> constants)
      : implementation_(desc.impl_info_str()),
        primitive_(desc),
        scratchpad_(desc.scratchpad_desc()),
        inputs_(std::move(inputs)),
        output_(std::move(output)),
        constants_(constants.begin(), constants.end()) {}

  ~PrimitiveKernel() override { delete idle_.load(); }

  std::string name() const override { return "oneDNN " + implementation_; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    std::unique_ptr<Call> call(idle_.exchange(nullptr));
    if (call == nullptr) call = make_call();
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      call->memories[i].set_data_handle(first_element(inputs_[i], *inputs[i]));
    call->memories[inputs_.size()].set_data_handle(outputs[0]->raw());
    if (const std::size_t bytes = scratchpad_.get_size(); bytes != 0)
      call->memories.back().set_data_handle(scratchpad_of_thread(bytes));
    std::vector<std::shared_ptr<const void>> held;
    held.reserve(constants_.size());
    for (std::size_t c = 0; c < constants_.size(); ++c) {
      held.push_back(constants_[c].second());
      call->arguments[call->memories.size() + c].memory = static_cast<const Packed*>(held.back().get())->memory.get();
    }
    const dnnl::stream& stream = stream_of_thread();
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream.get(),
                                                   static_cast<int>(call->arguments.size()), call->arguments.data()),
                            "could not execute a primitive");
    stream_of_thread().wait();
    call.reset(idle_.exchange(call.release()));
  }

 private:
  /// What one run is called with: making it takes a microsecond, so the last one waits for the next run.
  struct Call {
    std::vector<memory> memories;            ///< Of inputs, output and scratchpad.
    std::vector<dnnl_exec_arg_t> arguments;  ///< These, then constants.
  };

  std::unique_ptr<Call> make_call() const {
    auto call = std::make_unique<Call>();
    const auto add = [&](int index, const memory::desc& desc) {
      call->memories.emplace_back(desc, cpu_engine(), nullptr);
      call->arguments.push_back({index, call->memories.back().get()});
    };
    for (const Argument& input : inputs_) add(input.index, input.desc);
    add(output_.index, output_.desc);
    if (scratchpad_.get_size() != 0) add(DNNL_ARG_SCRATCHPAD, scratchpad_);
    for (const auto& [index, constant] : constants_) call->arguments.push_back({index, nullptr});
    return call;
  }

  static void* first_element(const Argument& argument, const Tensor& tensor) {
    const std::size_t size = memory::data_type_size(argument.desc.get_data_type());
    return static_cast<std::byte*>(const_cast<void*>(tensor.raw())) + argument.offset * static_cast<std::int64_t>(size);
  }

  const std::string implementation_;
  const Primitive primitive_;
  const memory::desc scratchpad_;
  const std::vector<Argument> inputs_;
  const Argument output_;
  const std::vector<std::pair<int, PreparedSource>> constants_;
  mutable std::atomic<Call*> idle_ = nullptr;
};

/// What `make(one_thread)` makes, which may be null, and run with one thread where `make` says so. So it is made, too,
/// where one thread takes less time for so many operations than the others take to begin and to meet again.
template <typename Make>
std::unique_ptr<Kernel> with_threads_for(std::int64_t operations, const Make& make) {
  constexpr std::int64_t kForEachThread = 10'000;  // Some 0.3 us.
  bool one_thread = operations < num_threads() * kForEachThread;
  std::optional<ScopedThreads> single;
  if (one_thread) single.emplace(1);
  std::unique_ptr<Kernel> kernel = make(one_thread);
  if (kernel == nullptr || !one_thread) return kernel;
  std::string name = "one thread, " + kernel->name();
  return make_kernel(std::move(name), [kernel = std::move(kernel)](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    const ScopedThreads alone(1);
    kernel->run(inputs, outputs);
  });
}

/// Kept by its kernel.
inline PreparedSource pack_now(const memory::desc& desc, const Tensor& values) {
  return [object = pack(desc, values, desc).object] { return object; };
}

/// Two memory descriptors with equal text hold the same bytes in the same order.
inline std::string text_of(const memory::desc& desc) {
  std::string text = fmt::format("{}|", fmt::join(desc.get_padded_dims(), ","));
  text += fmt::format("{}|{}|{}", fmt::join(desc.get_strides(), ","), fmt::join(desc.get_inner_blks(), ","),
                      fmt::join(desc.get_inner_idxs(), ","));
  return text;
}

/// One constant may be read in several ways: transposed or not, with other groups.
inline std::string packed_key(const std::string& constant, const memory::desc& from, const memory::desc& to) {
  return fmt::format("packed|{}|{}|{}", constant, text_of(from), text_of(to));
}

}  // namespace ulpscope::cpu::onednn
