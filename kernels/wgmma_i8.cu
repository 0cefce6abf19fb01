// Peak rate of wgmma.m64n256k32 on signed bytes, accumulating in s32.
// Operations: warpgroups * (2 * iterations + 1) * 2 * 64 * 256 * 128.
// Launch, bytes and parameters: wgmma.cuh, with KT = 128.
#include "wgmma.cuh"

WGMMA_SHAPE(Int8, "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8", "", int, int2, "+r");

extern "C" __global__ __launch_bounds__(256, 1) void wgmma_i8(
    const void *a, const void *a2, const void *b, u32 iterations, int *out) {
    wgmma_peak<Int8>(a, a2, b, iterations, out);
}
