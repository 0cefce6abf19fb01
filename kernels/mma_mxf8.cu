// Peak rate of block-scaled mma.sync.m16n8k32 on e4m3 with ue8m0 factors of 32,
// accumulating in f32.
// FLOPs: warps * 8 * (2 * iterations + 1) * 2 * 16 * 8 * 32.
// Launch, bytes and parameters: mma.cuh; scale_a, scale_b: one word a lane, mma_scaled.cuh.
#include "mma_scaled.cuh"

MMA_SCALED_SHAPE(Mxf8,
                 "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale"
                 ".scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0");

extern "C" __global__ __launch_bounds__(256) void mma_mxf8(
    const u32 *a, const u32 *a2, const u32 *b, const u32 *scale_a, const u32 *scale_b,
    u32 iterations, float *out) {
    const u32 lane = threadIdx.x % LANES;
    mma_peak(Mxf8{scale_a[lane], scale_b[lane]}, a, a2, b, iterations, out);
}
