// Peak rate of wgmma.m64n256k16 on fp16, accumulating in f32.
// FLOPs: warpgroups * (2 * iterations + 1) * 2 * 64 * 256 * 64.
// Launch, bytes and parameters: wgmma.cuh, with KT = 64.
#include "wgmma.cuh"

WGMMA_SHAPE(F16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", ", 1, 1, 0, 0", float, float2, "+f");

extern "C" __global__ __launch_bounds__(256, 1) void wgmma_f16(
    const void *a, const void *a2, const void *b, u32 iterations, float *out) {
    wgmma_peak<F16>(a, a2, b, iterations, out);
}
