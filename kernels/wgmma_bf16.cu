// Peak rate of wgmma.m64n256k16 on bf16, accumulating in f32.
// FLOPs: warpgroups * (2 * iterations + 1) * 2 * 64 * 256 * 64.
// Launch, bytes and parameters: wgmma.cuh, with KT = 64.
#include "wgmma.cuh"

WGMMA_SHAPE(Bf16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", ", 1, 1, 0, 0", float, float2, "+f");

extern "C" __global__ __launch_bounds__(256, 1) void wgmma_bf16(
    const void *a, const void *a2, const void *b, u32 iterations, float *out) {
    wgmma_peak<Bf16>(a, a2, b, iterations, out);
}
