// Peak rate of wgmma.m64n256k32 on e4m3, accumulating in f32.
// The units of 9.0 keep about 14 bits while they add products of fp8 (DeepSeek-V3 Technical
// Report, 3.3.2), so a result is good to about 2^-13 of its largest partial sum, not to f32.
// FLOPs: warpgroups * (2 * iterations + 1) * 2 * 64 * 256 * 128.
// Launch, bytes and parameters: wgmma.cuh, with KT = 128.
#include "wgmma.cuh"

WGMMA_SHAPE(E4m3, "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", ", 1, 1", float, float2, "+f");

extern "C" __global__ __launch_bounds__(256, 1) void wgmma_f8(
    const void *a, const void *a2, const void *b, u32 iterations, float *out) {
    wgmma_peak<E4m3>(a, a2, b, iterations, out);
}
