#define _GNU_SOURCE
// Register-only fp32 multiply-adds, all cores pinned; prints best and median GFLOP/s of all threads together.
// Usage: fma [threads [seconds]]. Vector width and the multiply-add are the compiler's for -march=native.
#define WIDTH_BYTES 64
#if !defined(__AVX512F__)
#undef WIDTH_BYTES
#if defined(__AVX__)
#define WIDTH_BYTES 32
#else
#define WIDTH_BYTES 16
#endif
#endif
typedef float vector __attribute__((vector_size(WIDTH_BYTES)));
enum { CHAINS = 12, ITERATIONS = 200000 };
#define OPERATIONS (2.0 * CHAINS * ITERATIONS * sizeof(vector) / sizeof(float))

static double chains(void) {
    vector s[CHAINS], m, a;
    for (unsigned l = 0; l < sizeof m / sizeof m[0]; l++) m[l] = 0.5f, a[l] = 1.0f;
    for (int c = 0; c < CHAINS; c++) s[c] = a;
    __asm__ volatile("" : "+x"(m), "+x"(a)); // unknown to the optimiser, so nothing folds
    for (int i = 0; i < ITERATIONS; i++)
        for (int c = 0; c < CHAINS; c++) s[c] = s[c] * m + a;
    double sum = 0;
    for (int c = 0; c < CHAINS; c++) sum += s[c][0];
    return sum - 2.0 * CHAINS; // every chain converges to 2
}
#include "peak.h"
