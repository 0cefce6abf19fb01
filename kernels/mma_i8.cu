// Peak rate of mma.sync.m16n8k32 on signed bytes, accumulating in s32.
// Operations: warps * 8 * (2 * iterations + 1) * 2 * 16 * 8 * 32.
// Launch, bytes and parameters: mma.cuh.
#include "mma.cuh"

MMA_SHAPE(Int8, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", int, "+r");

extern "C" __global__ __launch_bounds__(256) void mma_i8(
    const u32 *a, const u32 *a2, const u32 *b, u32 iterations, int *out) {
    mma_peak(Int8{}, a, a2, b, iterations, out);
}
