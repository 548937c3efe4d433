// Loops that the compiler vectorizes, for the widest vectors that the processor has: chosen when the program starts.
#pragma once

/// Before a function whose plain loops are worth it. What it computes must not depend on the width: no reordered sums
/// of floats.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define ULPSCOPE_VECTOR_CLONES \
  __attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3", "fp-contract=off")))
#else
#define ULPSCOPE_VECTOR_CLONES
#endif
