// Peak rate of mma.sync.m16n8k32 on e4m3, accumulating in f32.
// Native on compute capability 8.9 and 12.x; 9.0, 10.x and 11.0 convert to fp16 first, so it is
// not offered there (see wgmma_f8 and tcgen05_f8).
// FLOPs: warps * 8 * (2 * iterations + 1) * 2 * 16 * 8 * 32.
// Launch, bytes and parameters: mma.cuh.
#include "mma.cuh"

MMA_SHAPE(E4m3, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", float, "+f");

extern "C" __global__ __launch_bounds__(256) void mma_f8(
    const u32 *a, const u32 *a2, const u32 *b, u32 iterations, float *out) {
    mma_peak(E4m3{}, a, a2, b, iterations, out);
}
