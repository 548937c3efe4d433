#include "backend/cuda/warp_groups.h"

#include <fmt/format.h>

#include "backend/cuda/element_source.h"

namespace ulpscope::cuda {

const char* warp_group_functions() {
  return R"(
struct __align__(64) TensorMap { u64 words[16]; };
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void init_barrier(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}
DEVICE void expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}
DEVICE void arrive_here(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
DEVICE void wait(u32 barrier, u32 parity) {
  asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}
DEVICE void load_box(u32 to, const TensorMap* map, u32 barrier, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               :: "r"(to), "l"(map), "r"(barrier), "r"(column), "r"(row) : "memory");
}
// The same of one of many matrices.
DEVICE void load_box(u32 to, const TensorMap* map, u32 barrier, int column, int row, int inner, int outer) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
               "%6}], [%2];"
               :: "r"(to), "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(inner), "r"(outer) : "memory");
}
// What this thread has written to shared memory is there for wgmma.
DEVICE void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE uint4 load_word(u32 at) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at) : "memory");
  return x;
}
DEVICE void store_word(u32 at, uint4 x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               :: "r"(at), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
DEVICE void store_pair(u32 at, u32 x) { asm volatile("st.shared.u32 [%0], %1;" :: "r"(at), "r"(x) : "memory"); }
// A box in shared memory as wgmma takes it: rows of 64 columns along the inner dimension, swapped within 128 bytes, 8
// rows 1024 bytes apart.
DEVICE u64 box_at(u32 address) { return (u64)((address & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62; }
// The same with the inner dimension along the rows: `step` bytes from 64 columns to the next ones.
DEVICE u64 turned_box_at(u32 address, u32 step) {
  return (u64)((address & 0x3ffff) >> 4) | (u64)(step >> 4) << 16 | (u64)64 << 32 | (u64)1 << 62;
}
)";
}

std::string operands_from(std::int64_t first, std::int64_t count) {
  std::string list;
  for (std::int64_t i = 0; i < count; ++i) list += fmt::format("{}%{}", i == 0 ? "" : ", ", first + i);
  return list;
}

std::string sums_of_d(std::int64_t count, char kind) {
  std::string list;
  for (std::int64_t i = 0; i < count; ++i) list += fmt::format("{}\"+{}\"(d[{}])", i == 0 ? "" : ", ", kind, i);
  return list;
}

std::string multiply_code(std::string_view name, DataType type, std::int64_t columns) {
  const std::int64_t registers = columns / 2;
  const bool integers = type == DataType::kInt8, bytes = size_of(type) == 1;
  // Signs of both operands, and which of them are transposed, where the instruction asks for these.
  const std::string_view options = integers ? "" : bytes ? ", 1, 1" : ", 1, 1, 0, 0";
  return fmt::format(
      "DEVICE void {0}({9} (&d)[{1}], u64 a, u64 b, int add) {{\n"
      "  asm volatile(\"{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{2}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{3}k{10}.{11}.{4}.{4} {{{5}}}, %{6}, %{7}, add{12};\\n}}\"\n"
      "    : {8} : \"l\"(a), \"l\"(b), \"r\"(add));\n}}\n",
      name, registers, registers + 2, columns, integers ? "s8" : type_code(type), operands_from(0, registers),
      registers, registers + 1, sums_of_d(registers, integers ? 'r' : 'f'), integers ? "int" : "float", bytes ? 32 : 16,
      integers ? "s32" : "f32", options);
}

std::string await_code(std::string_view name, std::int64_t columns) {
  return fmt::format(
      "DEVICE void {}(float (&d)[{}]) {{\n  asm volatile(\"wgmma.wait_group.sync.aligned 0;\" : {} :: "
      "\"memory\");\n}}\n",
      name, columns / 2, sums_of_d(columns / 2));
}

}  // namespace ulpscope::cuda
