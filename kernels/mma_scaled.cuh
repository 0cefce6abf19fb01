// What the two block-scaled peaks add to mma.cuh: a word of scale factors a lane for A and one
// for B, the same for every accumulator. With byte-id 0 and thread-id 0 the words in use are
//   A: lane 4 * g for row g, lane 4 * g + 1 for row g + 8
//   B: lane 4 * g for column g
// and the bytes of such a word are the factors of its row's blocks in the order of k: four
// blocks of 16 (nvf4), or one of 32 in the lowest byte (mxf8).
#pragma once

#include "mma.cuh"

#define MMA_SCALED_SHAPE(NAME, INSTRUCTION)                                                      \
    struct NAME {                                                                                \
        using Accumulator = float;                                                               \
        static constexpr u32 A_REGISTERS = 4, B_REGISTERS = 2, C_REGISTERS = 4;                  \
        u32 scale_a, scale_b;                                                                    \
        __device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4],               \
                                                 const u32 (&b)[2]) const {                      \
            asm volatile(INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "           \
                                     "{%0, %1, %2, %3}, {%10}, {0, 0}, {%11}, {0, 0};"           \
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),     \
                           "r"(scale_a), "r"(scale_b));                                          \
        }                                                                                        \
    }
