// The scheme shared by every mma.sync peak: a warp holds eight accumulators, enough
// independent chains to cover the latency of one tensor-core instruction, and multiplies
// them by two A fragments in turn. Nothing but registers is touched inside the loop.
//
// A kernel is launched with 256 threads (8 warps) a block and any grid:
//   a, a2       A fragments: register r of lane l is word r * 32 + l, the same for every warp
//   b           B fragments: register r of accumulator j is word (j * B_REGISTERS + r) * 32 + l
//   iterations  trips of the loop; each adds A * B_j and then A2 * B_j to accumulator j
//   out         register r of accumulator j is word ((warp * 8 + j) * C_REGISTERS + r) * 32 + l
// A last A * B_j follows the loop, so with A2 = -A the result is A * B_j for any count.
//
// FLOPs (integer operations for the integer kernels):
//   warps * 8 * (2 * iterations + 1) * 2 * m * n * k
// Bytes: (2 * A_REGISTERS + 8 * B_REGISTERS) * 128 read by each warp, out of the caches after
// the first, and 8 * C_REGISTERS * 128 written; none that grow with `iterations`.
#pragma once

using u32 = unsigned int;

constexpr u32 LANES = 32;
constexpr u32 ACCUMULATORS = 8;

// `Shape` gives the counts of registers, the type of an accumulator's register, and
// `multiply(c, a, b)`: c += a * b with one instruction.
template <class Shape>
__device__ __forceinline__ void mma_peak(const Shape shape, const u32 *__restrict__ a,
                                         const u32 *__restrict__ a2, const u32 *__restrict__ b,
                                         u32 iterations, typename Shape::Accumulator *out) {
    const u32 lane = threadIdx.x % LANES;
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;

    u32 plus[Shape::A_REGISTERS], minus[Shape::A_REGISTERS];
#pragma unroll
    for (u32 r = 0; r < Shape::A_REGISTERS; ++r) {
        plus[r] = a[r * LANES + lane];
        minus[r] = a2[r * LANES + lane];
    }
    u32 right[ACCUMULATORS][Shape::B_REGISTERS];
    typename Shape::Accumulator sum[ACCUMULATORS][Shape::C_REGISTERS];
#pragma unroll
    for (u32 j = 0; j < ACCUMULATORS; ++j) {
#pragma unroll
        for (u32 r = 0; r < Shape::B_REGISTERS; ++r)
            right[j][r] = b[(j * Shape::B_REGISTERS + r) * LANES + lane];
#pragma unroll
        for (u32 r = 0; r < Shape::C_REGISTERS; ++r) sum[j][r] = 0;
    }

#pragma unroll 1
    for (u32 i = 0; i < iterations; ++i) {
#pragma unroll
        for (u32 j = 0; j < ACCUMULATORS; ++j) shape.multiply(sum[j], plus, right[j]);
#pragma unroll
        for (u32 j = 0; j < ACCUMULATORS; ++j) shape.multiply(sum[j], minus, right[j]);
    }

#pragma unroll
    for (u32 j = 0; j < ACCUMULATORS; ++j) {
        shape.multiply(sum[j], plus, right[j]);
#pragma unroll
        for (u32 r = 0; r < Shape::C_REGISTERS; ++r) {
            const unsigned long long row = (warp * ACCUMULATORS + j) * Shape::C_REGISTERS + r;
            out[row * LANES + lane] = sum[j][r];
        }
    }
}

// An instruction with four A, two B and four f32 (or s32) accumulator registers: all of them
// but the one that accumulates in f16.
#define MMA_SHAPE(NAME, INSTRUCTION, ACCUMULATOR, CONSTRAINT)                                    \
    struct NAME {                                                                                \
        using Accumulator = ACCUMULATOR;                                                         \
        static constexpr u32 A_REGISTERS = 4, B_REGISTERS = 2, C_REGISTERS = 4;                  \
        __device__ __forceinline__ void multiply(Accumulator (&c)[4], const u32 (&a)[4],         \
                                                 const u32 (&b)[2]) const {                      \
            asm volatile(INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "           \
                                     "{%0, %1, %2, %3};"                                         \
                         : CONSTRAINT(c[0]), CONSTRAINT(c[1]), CONSTRAINT(c[2]),                 \
                           CONSTRAINT(c[3])                                                      \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));    \
        }                                                                                        \
    }
