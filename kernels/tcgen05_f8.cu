// Peak rate of tcgen05.mma.kind::f8f6f4 on e4m3, accumulating in f32.
// FLOPs: blocks * (2 * iterations + 1) * 2 * 128 * 256 * 64.
// Launch, bytes and parameters: tcgen05.cuh, with KT = 64.
#include "tcgen05.cuh"

TCGEN05_KIND(E4m3, "f8f6f4", ACCUMULATE_F32 | types(0) | SHAPE);

extern "C" __global__ __launch_bounds__(THREADS) void tcgen05_f8(
    const void *a, const void *a2, const void *b, u32 iterations, float *out) {
    tcgen05_peak(E4m3{}, a, a2, b, iterations, out);
}
