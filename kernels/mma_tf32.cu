// Peak rate of mma.sync.m16n8k8 on tf32, accumulating in f32.
// FLOPs: warps * 8 * (2 * iterations + 1) * 2 * 16 * 8 * 8.
// Launch, bytes and parameters: mma.cuh.
#include "mma.cuh"

MMA_SHAPE(Tf32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", float, "+f");

extern "C" __global__ __launch_bounds__(256) void mma_tf32(
    const u32 *a, const u32 *a2, const u32 *b, u32 iterations, float *out) {
    mma_peak(Tf32{}, a, a2, b, iterations, out);
}
