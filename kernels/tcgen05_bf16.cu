// Peak rate of tcgen05.mma.kind::f16 on bf16, accumulating in f32.
// FLOPs: blocks * (2 * iterations + 1) * 2 * 128 * 256 * 32.
// Launch, bytes and parameters: tcgen05.cuh, with KT = 32.
#include "tcgen05.cuh"

TCGEN05_KIND(Bf16, "f16", ACCUMULATE_F32 | types(1) | SHAPE);

extern "C" __global__ __launch_bounds__(THREADS) void tcgen05_bf16(
    const void *a, const void *a2, const void *b, u32 iterations, float *out) {
    tcgen05_peak(Bf16{}, a, a2, b, iterations, out);
}
