// Peak rate of block-scaled mma.sync.m16n8k64 on e2m1 with ue4m3 factors of 16,
// accumulating in f32.
// FLOPs: warps * 8 * (2 * iterations + 1) * 2 * 16 * 8 * 64.
// Launch, bytes and parameters: mma.cuh; scale_a, scale_b: one word a lane, mma_scaled.cuh.
#include "mma_scaled.cuh"

MMA_SCALED_SHAPE(Nvf4,
                 "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale"
                 ".scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3");

extern "C" __global__ __launch_bounds__(256) void mma_nvf4(
    const u32 *a, const u32 *a2, const u32 *b, const u32 *scale_a, const u32 *scale_b,
    u32 iterations, float *out) {
    const u32 lane = threadIdx.x % LANES;
    mma_peak(Nvf4{scale_a[lane], scale_b[lane]}, a, a2, b, iterations, out);
}
