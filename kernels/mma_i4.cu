// Peak rate of mma.sync.m16n8k64 on signed nibbles, accumulating in s32.
// Native up to compute capability 8.9; later ones unpack to bytes, so it is not offered there.
// Operations: warps * 8 * (2 * iterations + 1) * 2 * 16 * 8 * 64.
// Launch, bytes and parameters: mma.cuh.
#include "mma.cuh"

MMA_SHAPE(Int4, "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", int, "+r");

extern "C" __global__ __launch_bounds__(256) void mma_i4(
    const u32 *a, const u32 *a2, const u32 *b, u32 iterations, int *out) {
    mma_peak(Int4{}, a, a2, b, iterations, out);
}
