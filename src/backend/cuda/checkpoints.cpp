#include "backend/cuda/checkpoints.h"

#include <algorithm>
#include <bit>
#include <string>

#include "backend/cuda/runtime.h"

namespace ulpscope::cuda {
namespace {

/// Steps between two checkpoints, at least, and how many checkpoints there are at most.
constexpr std::size_t kStretch = 8, kMost = 8;

/// Follows the steps and names what they leave in memory.
class Names {
 public:
  explicit Names(const Steps& steps) : steps_(steps), host_(steps.host.size()) {
    for (const Buffer& buffer : steps.buffers) {
      buffers_.push_back(buffer.name);
      uploaded_.push_back(0);
    }
    for (std::size_t i = 0; i < host_.size(); ++i) {
      const HostValue& value = steps.host[i];
      if (value.constant)
        host_[i] = activation_key({static_cast<const char*>(value.constant.raw()), value.constant.bytes()});
      else
        host_[i] = {0, static_cast<std::uint64_t>(value.input)};
    }
  }

  void follow(const Step& step) {
    text_.clear();
    describe(step);
    // Where something is written, what was there before may remain in part; a part of a Concat lies in the whole.
    for_each_pointer(step, [&](const Pointer& pointer, bool) {
      put(static_cast<std::uint64_t>(pointer.bytes));
      if (pointer.buffer < 0) return;
      put(steps_.buffers[pointer.buffer].bytes);
      put(buffers_[pointer.buffer]);
    });
    if (const auto* upload = std::get_if<UploadStep>(&step.work)) put(host_[upload->host]);
    const ActivationKey computed = activation_key(text_);
    if (const auto* host = std::get_if<HostStep>(&step.work)) {
      for (std::size_t o = 0; o < host->outputs.size(); ++o)
        if (host->outputs[o] >= 0) host_[host->outputs[o]] = part_of(computed, o);
    } else if (const auto* download = std::get_if<DownloadStep>(&step.work)) {
      host_[download->host] = computed;
    } else {
      std::uint64_t written = 0;
      for_each_pointer(step, [&](const Pointer& pointer, bool writes) {
        if (!writes || pointer.buffer < 0) return;
        buffers_[pointer.buffer] = part_of(computed, written++);
        uploaded_[pointer.buffer] = std::holds_alternative<UploadStep>(step.work);
      });
    }
  }

  const ActivationKey& of_buffer(std::size_t buffer) const { return buffers_[buffer]; }
  bool is_uploaded(std::size_t buffer) const { return uploaded_[buffer] != 0; }

 private:
  void put(std::uint64_t number) { text_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void put(const ActivationKey& key) {
    put(key.first);
    put(key.second);
  }
  void put(const std::string& text) {
    put(text.size());
    text_ += text;
  }
  static ActivationKey part_of(const ActivationKey& key, std::uint64_t index) {
    return {key.first, key.second + index * 0x9e3779b97f4a7c15u};
  }

  void describe(const Step& step) {
    put(step.work.index());
    if (const auto* kernel = std::get_if<KernelStep>(&step.work)) {
      describe(*kernel);
    } else if (const auto* product = std::get_if<ProductStep>(&step.work)) {
      describe(*product);
    } else if (const auto* both = std::get_if<ProductProgramStep>(&step.work)) {
      put(both->computes);
      put(both->algorithm);
      if (both->product.product != nullptr) describe(both->product);
    } else if (const auto* convolution = std::get_if<ConvolveStep>(&step.work)) {
      put(text_of(convolution->spec));
      if (convolution->plan != nullptr) put(convolution->plan->tactic());
    } else if (const auto* clear = std::get_if<ClearStep>(&step.work)) {
      put(clear->bytes);
    } else if (const auto* host = std::get_if<HostStep>(&step.work)) {
      put(host->computes);
      for (const int input : host->inputs) put(input < 0 ? ActivationKey{} : host_[input]);
    }
  }
  void describe(const KernelStep& kernel) {
    put(kernel.source->hash);
    for (const unsigned size : kernel.source->grid) put(size);
    put(kernel.source->block);
  }
  void describe(const ProductStep& product) {
    put(product.spec.text());
    put(std::bit_cast<std::uint32_t>(product.factor));
    if (product.product != nullptr) put(product.product->tactic());
  }

  const Steps& steps_;
  std::vector<ActivationKey> buffers_, host_;
  std::vector<char> uploaded_;
  std::string text_;
};

bool is_alive(const Buffer& buffer, std::size_t before) {
  const auto step = static_cast<int>(before);
  return buffer.is_in_arena() && buffer.place.first >= 0 && buffer.place.first < step && buffer.place.last >= step;
}

}  // namespace

std::vector<Checkpoint> checkpoints_of(const Steps& steps, std::size_t first, std::size_t last) {
  std::vector<Checkpoint> result;
  const std::size_t stretches = std::min(kMost, (last - first) / kStretch);
  std::vector<std::size_t> alive(last + 1, 0);
  for (const Buffer& buffer : steps.buffers)
    for (std::size_t i = first + 1; i < last; ++i)
      if (is_alive(buffer, i)) alive[i] += buffer.bytes;
  for (std::size_t s = 0; s < stretches; ++s) {
    const auto begin = alive.begin() + static_cast<std::ptrdiff_t>(first + 1 + s * (last - first - 1) / stretches);
    const auto end = alive.begin() + static_cast<std::ptrdiff_t>(first + 1 + (s + 1) * (last - first - 1) / stretches);
    result.push_back({static_cast<std::size_t>(std::min_element(begin, end) - alive.begin()), {}});
  }
  Names names(steps);
  auto next = result.begin();
  for (std::size_t i = 0; i < last && next != result.end(); ++i) {
    if (next->step == i) {
      for (std::size_t b = 0; b < steps.buffers.size(); ++b)
        if (is_alive(steps.buffers[b], i) && !names.is_uploaded(b))
          next->values.push_back({names.of_buffer(b), static_cast<int>(b)});
      ++next;
    }
    names.follow(steps.steps[i]);
  }
  return result;
}

}  // namespace ulpscope::cuda
