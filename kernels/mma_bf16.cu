// Peak rate of mma.sync.m16n8k16 on bf16, accumulating in f32.
// FLOPs: warps * 8 * (2 * iterations + 1) * 2 * 16 * 8 * 16.
// Launch, bytes and parameters: mma.cuh.
#include "mma.cuh"

MMA_SHAPE(Bf16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", float, "+f");

extern "C" __global__ __launch_bounds__(256) void mma_bf16(
    const u32 *a, const u32 *a2, const u32 *b, u32 iterations, float *out) {
    mma_peak(Bf16{}, a, a2, b, iterations, out);
}
