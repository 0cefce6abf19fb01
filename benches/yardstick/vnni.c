#define _GNU_SOURCE
// Register-only 8-bit dot products (VNNI), all cores pinned; prints best and median GOP/s of all threads together.
// Usage: vnni [threads [seconds]].
#if defined(__AVX512VNNI__)
#include <immintrin.h>
enum { CHAINS = 12, ITERATIONS = 200000 };
#define OPERATIONS (2.0 * CHAINS * ITERATIONS * 64)

static double chains(void) {
    __m512i s[CHAINS], u = _mm512_set1_epi8(3), w = _mm512_set1_epi8(-2);
    for (int c = 0; c < CHAINS; c++) s[c] = _mm512_setzero_si512();
    __asm__ volatile("" : "+v"(u), "+v"(w)); // unknown to the optimiser, so nothing folds
    for (int i = 0; i < ITERATIONS; i++)
        for (int c = 0; c < CHAINS; c++) s[c] = _mm512_dpbusd_epi32(s[c], u, w);
    int off = 0;
    for (int c = 0; c < CHAINS; c++) off |= _mm512_reduce_add_epi32(s[c]) - 16 * -24 * ITERATIONS;
    return off;
}
#include "peak.h"
#else
#include <stdio.h>
int main(void) { return fprintf(stderr, "this CPU or compiler has no AVX512-VNNI\n"), 3; }
#endif
