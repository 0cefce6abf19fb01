// Peak rate of mma.sync.m16n8k16 on fp16, accumulating in f32 and in f16.
// FLOPs: warps * 8 * (2 * iterations + 1) * 2 * 16 * 8 * 16.
// Launch, bytes and parameters: mma.cuh.
#include "mma.cuh"

MMA_SHAPE(F16F32, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", float, "+f");

// The accumulators are pairs of f16: two registers instead of four.
struct F16F16 {
    using Accumulator = u32;
    static constexpr u32 A_REGISTERS = 4, B_REGISTERS = 2, C_REGISTERS = 2;
    __device__ __forceinline__ void multiply(u32 (&c)[2], const u32 (&a)[4],
                                             const u32 (&b)[2]) const {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
                     "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                     : "+r"(c[0]), "+r"(c[1])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};

extern "C" __global__ __launch_bounds__(256) void mma_f16_f32(
    const u32 *a, const u32 *a2, const u32 *b, u32 iterations, float *out) {
    mma_peak(F16F32{}, a, a2, b, iterations, out);
}

extern "C" __global__ __launch_bounds__(256) void mma_f16_f16(
    const u32 *a, const u32 *a2, const u32 *b, u32 iterations, u32 *out) {
    mma_peak(F16F16{}, a, a2, b, iterations, out);
}
