// Peak rate of tcgen05.mma.kind::i8 on signed bytes, accumulating in s32.
// Operations: blocks * (2 * iterations + 1) * 2 * 128 * 256 * 64.
// Launch, bytes and parameters: tcgen05.cuh, with KT = 64.
#include "tcgen05.cuh"

TCGEN05_KIND(Int8, "i8", ACCUMULATE_S32 | types(1) | SHAPE);

extern "C" __global__ __launch_bounds__(THREADS) void tcgen05_i8(
    const void *a, const void *a2, const void *b, u32 iterations, int *out) {
    tcgen05_peak(Int8{}, a, a2, b, iterations, out);
}
