// CUDA kernels as C++: compiled with the system's compiler, run thread by thread on this processor. Threads of a block
// are fibers that switch at barriers and shuffles.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "backend/cuda/kernel_source.h"

namespace ulpscope::cuda::shim {

// What a kernel takes from CUDA. Rounds: every live thread runs from one barrier or shuffle to the next.
inline constexpr const char* kRuntime = R"(
#include <math.h>
#include <ucontext.h>
#include <sys/mman.h>
#include <string.h>
#include <algorithm>
#include <vector>
#include "formats/rounding.h"
struct uint2 { unsigned x, y; };
struct float2 { float x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct Dim3 { unsigned x = 0, y = 0, z = 0; };
static Dim3 threadIdx, blockIdx, blockDim, gridDim;
static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return result;
}
static float __int_as_float(int x) { return __uint_as_float(x); }
static long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }
static unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static float __ll2float_rz(long long x) { const float y = (float)x; return fabs((double)y) > fabsl((long double)x) ? nextafterf(y, 0) : y; }
static float __ull2float_rz(unsigned long long x) { const float y = (float)x; return (long double)y > (long double)x ? nextafterf(y, 0) : y; }
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

namespace fibers {
enum Wait { kNone, kBarrier, kShuffle, kDone };
constexpr size_t kStack = 128 * 1024;
struct Fiber { ucontext_t context; Wait wait; unsigned shuffles; };
static Fiber all[1024];
static ucontext_t home;
static double slots[2][1024];
static const char* failure = nullptr;
static char* stacks() {
  static char* memory = (char*)mmap(nullptr, kStack * 1024, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory;
}
static void (*body)(void**);
static void** arguments;
static void start() {
  body(arguments);
  all[threadIdx.x].wait = kDone;
  swapcontext(&all[threadIdx.x].context, &home);
}
static void wait(Wait kind) {
  const unsigned self = threadIdx.x;
  all[self].wait = kind;
  swapcontext(&all[self].context, &home);
}
static void run_block() {
  const unsigned n = blockDim.x;
  for (unsigned i = 0; i < n; ++i) {
    getcontext(&all[i].context);
    all[i].context.uc_stack.ss_sp = stacks() + kStack * i;
    all[i].context.uc_stack.ss_size = kStack;
    all[i].context.uc_link = nullptr;
    all[i].wait = kNone;
    all[i].shuffles = 0;
    makecontext(&all[i].context, start, 0);
  }
  for (bool live = true; live;) {
    live = false;
    // Warps meet at a barrier, each when it gets there.
    bool barrier = true, done = false;
    for (unsigned i = 0; i < n; ++i) {
      barrier &= all[i].wait == kBarrier || all[i].wait == kDone;
      done |= all[i].wait == kDone;
    }
    for (unsigned i = 0; i < n; ++i) {
      if (all[i].wait == kDone) continue;
      live = true;
      if (all[i].wait == kBarrier && !barrier) continue;
      if (all[i].wait == kBarrier && done) failure = "threads of a block wait at different places";
      threadIdx.x = i;
      swapcontext(&home, &all[i].context);
    }
    for (unsigned i = 1; i < n; ++i)
      if (i % 32 != 0 && all[i - 1].wait != all[i].wait) failure = "threads of a warp wait at different places";
    if (failure != nullptr) return;
  }
}
}  // namespace fibers
static void __syncthreads() { fibers::wait(fibers::kBarrier); }
static void __syncwarp() { fibers::wait(fibers::kShuffle); }
// Of floats and doubles.
template <class T> static T __shfl_xor_sync(unsigned, T x, int distance) {
  const unsigned self = threadIdx.x, other = self ^ distance;
  double* slots = fibers::slots[fibers::all[self].shuffles++ % 2];
  slots[self] = x;
  fibers::wait(fibers::kShuffle);
  if (other >= blockDim.x || self / 32 != other / 32) fibers::failure = "a shuffle reads a lane that is not there";
  return (T)slots[other];
}
// mma.m16n8k16 on the lanes of a warp, sums in double.
template <class Widen>
static void multiply_lanes(float (&d)[4], const unsigned (&a)[4], unsigned b, unsigned b1, Widen widen) {
  static unsigned all[2][1024][6];
  const unsigned self = threadIdx.x, first = self / 32 * 32, lane = self % 32;
  unsigned (*words)[6] = all[fibers::all[self].shuffles++ % 2];
  for (int i = 0; i < 4; ++i) words[self][i] = a[i];
  words[self][4] = b, words[self][5] = b1;
  fibers::wait(fibers::kShuffle);
  for (int i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = d[i];
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned x = words[first + row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2] >> k % 2 * 16;
      const unsigned y = words[first + column * 4 + k % 8 / 2][4 + k / 8] >> k % 2 * 16;
      sum += (double)widen((unsigned short)x) * widen((unsigned short)y);
    }
    d[i] = (float)sum;
  }
}
static int __any_sync(unsigned, bool x) {
  static bool all[2][1024];
  const unsigned self = threadIdx.x;
  bool* said = all[fibers::all[self].shuffles++ % 2];
  said[self] = x;
  fibers::wait(fibers::kShuffle);
  return std::any_of(said + self / 32 * 32, said + self / 32 * 32 + 32, [](bool each) { return each; });
}
// What kernels declare as `extern __shared__`: the first shared_bytes of it.
alignas(16) static unsigned char shared_memory[256 << 10];
static unsigned shared_bytes = 0;
static unsigned __cvta_generic_to_shared(const void* at) {
  return (unsigned)((const unsigned char*)at - shared_memory);
}
static unsigned char* shared_words(unsigned at) {
  if (at % 16 != 0 || at + 16 > shared_bytes) fibers::failure = "16 bytes of shared memory that are not there";
  return shared_memory + at % (sizeof shared_memory - 16);
}
static void copy_words(unsigned to, const void* from, int count) {
  unsigned char* const at = shared_words(to);
  memset(at, 0, 16);
  memcpy(at, from, count);
}
// ldmatrix.x4: lane 8 i + r says where row r of matrix i is.
static void load_matrices(bool turned, unsigned& a, unsigned& b, unsigned& c, unsigned& d, unsigned at) {
  static unsigned all[2][1024];
  const unsigned self = threadIdx.x, first = self / 32 * 32, lane = self % 32;
  unsigned* rows = all[fibers::all[self].shuffles++ % 2];
  rows[self] = at;
  fibers::wait(fibers::kShuffle);
  unsigned* const words[4] = {&a, &b, &c, &d};
  for (unsigned i = 0; i < 4; ++i) {
    unsigned short x[2];
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned row = turned ? lane % 4 * 2 + e : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + e;
      memcpy(&x[e], shared_words(rows[first + i * 8 + row]) + column * 2, 2);
    }
    *words[i] = x[0] | (unsigned)x[1] << 16;
  }
}
static float widen_as(const char* type, unsigned short x) {
  return type[0] == 'f' ? ulpscope::f16_value(x) : __uint_as_float((unsigned)x << 16);
}
static unsigned atomicAdd(unsigned* to, unsigned x) { const unsigned old = *to; *to += x; return old; }
static unsigned atomicMax(unsigned* to, unsigned x) { const unsigned old = *to; *to = old > x ? old : x; return old; }
static const char* launch(void (*body)(void**), void** arguments, const unsigned* grid, unsigned block, bool waits) {
  blockDim.x = block;
  blockDim.y = blockDim.z = 1;
  gridDim = {grid[0], grid[1], grid[2]};
  fibers::body = body;
  fibers::arguments = arguments;
  fibers::failure = nullptr;
  for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) {
        if (waits) fibers::run_block();
        else for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) body(arguments);
        if (fibers::failure != nullptr) return fibers::failure;
      }
  return nullptr;
}
)";

/// The prelude with its machine instructions replaced.
inline std::string portable_prelude() {
  static const std::map<std::string, std::string> functions{
      {"widen_f16", "DEVICE float widen_f16(u16 x) { return ulpscope::f16_value(x); }"},
      {"begin", "DEVICE void begin() {}"},
      {"exp2_of", "DEVICE float exp2_of(float x) { return exp2f(x); }"},
      {"narrow_f16", "DEVICE u16 narrow_f16(float x) { return ulpscope::f16_bits(x); }"},
      {"multiplied_f16x2",
       "DEVICE u32 multiplied_f16x2(u32 a, u32 b) { return pair_f16(widen_f16(a) * widen_f16(b), widen_f16(a >> 16) * "
       "widen_f16(b >> 16)); }"},
      {"subtracted_f16x2",
       "DEVICE u32 subtracted_f16x2(u32 a, u32 b) { return pair_f16(widen_f16(a) - widen_f16(b), widen_f16(a >> 16) - "
       "widen_f16(b >> 16)); }"},
      {"fused_f16x2",
       "DEVICE u32 fused_f16x2(u32 a, u32 b, u32 c) { const auto one = [](u32 x, u32 y, u32 z) { return "
       "narrow_f16(fmaf(widen_f16(x), widen_f16(y), widen_f16(z))); }; return one(a, b, c) | (u32)one(a >> 16, b >> "
       "16, "
       "c >> 16) << 16; }"},
      {"picked", "DEVICE u32 picked(u32 a, u32 mask, u32 c) { return a & mask | c; }"},
      {"halves_e4m3",
       "DEVICE u32 halves_e4m3(u16 x) { return multiplied_f16x2((x & 0x80u) << 8 | (x & 0x7fu) << 7 | (x & 0x8000u) << "
       "16 "
       "| (x & 0x7f00u) << 15, 0x5c005c00u); }"},
      {"streamed", "DEVICE uint4 streamed(const u8* p) { return *(const uint4*)p; }"},
      {"multiply_f16",
       "DEVICE void multiply_f16(float (&d)[4], const u32 (&a)[4], u32 b, u32 b1) { multiply_lanes(d, a, b, b1, "
       "widen_f16); }"},
      {"multiply_bf16",
       "DEVICE void multiply_bf16(float (&d)[4], const u32 (&a)[4], u32 b, u32 b1) { multiply_lanes(d, a, b, b1, "
       "[](u16 x) { return __uint_as_float((u32)x << 16); }); }"},
      {"pair_e4m3", "DEVICE u32 pair_e4m3(float x, float y) { return code_e4m3(x) | code_e4m3(y) << 8; }"},
      {"narrow_bf16", "DEVICE u16 narrow_bf16(float x) { return ulpscope::bf16_bits(x); }"},
      {"pair_f16", "DEVICE u32 pair_f16(float x, float y) { return narrow_f16(x) | (u32)narrow_f16(y) << 16; }"},
      {"pair_bf16", "DEVICE u32 pair_bf16(float x, float y) { return narrow_bf16(x) | (u32)narrow_bf16(y) << 16; }"}};
  std::istringstream lines(prelude());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    // A function is one line here.
    while (line.starts_with("DEVICE") && std::ranges::count(line, '{') > std::ranges::count(line, '}')) {
      std::string more;
      if (!std::getline(lines, more)) throw std::runtime_error("a function without an end: " + line);
      line += "\n" + more;
    }
    if (line.find("asm") != std::string::npos) {
      std::smatch name;
      if (!std::regex_search(line, name, std::regex(R"((\w+)\()"))) throw std::runtime_error("unknown PTX: " + line);
      line = functions.at(name[1]);
    }
    text += line + "\n";
  }
  return text;
}

/// Machine instructions of a kernel are macros, and its shared memory is an array of this file.
inline std::string portable_kernel(const std::string& text) {
  static const std::map<std::string, std::string> macros{
      {"LDMATRIX", "#define LDMATRIX(M, a, b, c, d, p) load_matrices((M)[0] != 0, a, b, c, d, p)"},
      {"MMA",
       "#define MMA(c, a, b0, b1) multiply_lanes(c, a, b0, b1, [](unsigned short x) { return widen_as(NAME, x); })"},
      {"MMA_FROM_ZERO",
       "#define MMA_FROM_ZERO(c, a, b0, b1) (void)(c[0] = c[1] = c[2] = c[3] = 0), "
       "multiply_lanes(c, a, b0, b1, [](unsigned short x) { return widen_as(NAME, x); })"},
      {"COPY_LATER", "#define COPY_LATER(to, from, COUNT) copy_words(to, from, COUNT)"},
      {"COMMIT", "#define COMMIT"},
      {"ARRIVED", "#define ARRIVED(COUNT)"}};
  static const std::string kShared = "extern __shared__ __align__(16) u16 shared[];";
  std::istringstream lines(text);
  std::string result;
  for (std::string line, more; std::getline(lines, line);) {
    while (line.starts_with("#define") && line.ends_with("\\") && std::getline(lines, more)) line += "\n" + more;
    std::smatch name;
    if (line.starts_with("#define") && line.find("asm") != std::string::npos &&
        std::regex_search(line, name, std::regex(R"(#define (\w+))")))
      line = "#undef " + name[1].str() + "\n" + macros.at(name[1]);
    if (const std::size_t at = line.find(kShared); at != std::string::npos)
      line.replace(at, kShared.size(), "u16* const shared = (u16*)shared_memory;");
    result += line + "\n";
  }
  return result;
}

/// A function's name in place of "kernel(".
inline std::string renamed(const KernelSource& kernel, const std::string& name) {
  const std::string& head = prelude();
  if (kernel.source.compare(0, head.size(), head) != 0) throw std::runtime_error("a source begins with other text");
  std::string text = kernel.source.substr(head.size());
  const std::size_t at = text.find("kernel(");
  if (at == std::string::npos) throw std::runtime_error("a source has no kernel");
  return text.replace(at, 7, name + "(");
}

inline std::string compiler() {
  const char* const candidates[] = {std::getenv("CXX"), "c++"};
  for (const char* variable : candidates)
    if (variable != nullptr && *variable != '\0' &&
        std::system(fmt::format("{} --version >/dev/null 2>&1", variable).c_str()) == 0)
      return variable;
  return "";
}

/// Kernels, compiled in one library that stays open. Empty `error` on success.
class Kernels {
 public:
  Kernels(std::vector<KernelSource> sources, const std::string& compiler) : sources_(std::move(sources)) {
    const auto folder =
        std::filesystem::temp_directory_path() / fmt::format("ulpscope_shim_{}_{}", getpid(), count_.fetch_add(1));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "kernels.cpp") << text();
    const std::string command = fmt::format(
        "{} -std=c++20 -O0 -w -ffp-contract=off -fPIC -shared -fsanitize=alignment,bounds,shift,integer-divide-by-zero "
        "-fsanitize-undefined-trap-on-error -I{}/src -I{}/include {} -o {} 2> {}",
        compiler, ULPSCOPE_SOURCE_DIR, ULPSCOPE_SOURCE_DIR, (folder / "kernels.cpp").string(),
        (folder / "kernels.so").string(), (folder / "log").string());
    if (std::system(command.c_str()) == 0) library_ = dlopen((folder / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      std::ifstream log(folder / "log");
      error_ =
          fmt::format("{}: {}", folder.string(), std::string(std::istreambuf_iterator<char>(log), {}).substr(0, 4000));
      return;
    }
    std::filesystem::remove_all(folder);
  }
  const std::string& error() const { return error_; }

  /// Runs kernel `number`; what went wrong, or nothing.
  std::string run(std::size_t number, std::vector<void*> arguments) const {
    using Run = const char* (*)(void**, const unsigned*, unsigned);
    const auto run = reinterpret_cast<Run>(dlsym(library_, fmt::format("run_{}", number).c_str()));
    const KernelSource& kernel = sources_[number];
    const char* failure = run(arguments.data(), kernel.grid.data(), kernel.block);
    return failure == nullptr ? "" : failure;
  }

 private:
  std::string text() const {
    std::string all = std::string(kRuntime) + portable_prelude();
    for (std::size_t k = 0; k < sources_.size(); ++k) {
      const std::string name = fmt::format("kernel_{}", k), body = renamed(sources_[k], name);
      const std::size_t open = body.find(name + "("), close = body.find(')', open);
      const std::string parameters = body.substr(open + name.size() + 1, close - open - name.size() - 1);
      std::string call;
      std::istringstream each(parameters);
      int i = 0;
      for (std::string parameter; std::getline(each, parameter, ',');)
        call += fmt::format("{}({})a[{}]", i == 0 ? "" : ", ", parameter.substr(0, parameter.rfind('*') + 1), i), ++i;
      const bool waits = body.find("__s", open) != std::string::npos;
      // Each with functions of its own.
      all += fmt::format("namespace own_{} {{\n", k) + portable_kernel(body) +
             fmt::format("static void call(void** a) {{ {}({}); }}\n}}\n", name, call) +
             fmt::format(
                 "extern \"C\" const char* run_{}(void** a, const unsigned* grid, unsigned block) "
                 "{{ shared_bytes = {}; return launch(own_{}::call, a, grid, block, {}); }}\n",
                 k, sources_[k].shared, k, waits);
    }
    return all;
  }

  inline static std::atomic<int> count_ = 0;
  std::vector<KernelSource> sources_;
  void* library_ = nullptr;
  std::string error_;
};

/// Memory behind whose end nothing can be read. Begins with `fill` everywhere.
class GuardedBuffer {
 public:
  GuardedBuffer(std::size_t bytes, std::size_t alignment, unsigned char fill) : bytes_(bytes) {
    const std::size_t page = 4096, padded = (bytes + alignment - 1) / alignment * alignment;
    mapped_ = (padded + page - 1) / page * page + page;
    base_ =
        static_cast<unsigned char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) throw std::runtime_error("no memory");
    mprotect(base_ + mapped_ - page, page, PROT_NONE);
    data_ = base_ + mapped_ - page - padded;
    std::memset(data_, fill, bytes);
  }
  ~GuardedBuffer() { munmap(base_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  unsigned char* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_, mapped_;
  unsigned char *base_, *data_;
};

}  // namespace ulpscope::cuda::shim
