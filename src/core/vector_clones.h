// Loops that the compiler vectorizes, for the widest vectors that the processor has: chosen when the program starts.
#pragma once

/// Before a function whose plain loops are worth it. What it computes must not depend on the width: no reordered sums
/// of floats.
///
/// The processor chooses, not ULPSCOPE_ISA: the resolvers of GCC run while the program is relocated, before there is an
/// environment to read, and ask the processor alone. Tables of functions as program_kernels() has would take a
/// declaration for each loop and set. What the other sets give is seen in builds that choose for all loops at once:
/// -DCMAKE_CXX_FLAGS=-DULPSCOPE_VECTOR_CLONES= makes those of the baseline, as on other processors and in sanitizers.
#if !defined(ULPSCOPE_VECTOR_CLONES)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define ULPSCOPE_VECTOR_CLONES \
  __attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3", "fp-contract=off")))
#else
#define ULPSCOPE_VECTOR_CLONES
#endif
#endif
