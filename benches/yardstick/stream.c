// Bandwidth of main memory: sum of one array, and triad with non-temporal stores, all cores pinned.
// Usage: stream [threads [bytes of all arrays together [seconds]]]; prints best and median rates in GB/s.
// Traffic: read 1x, triad 3x the array (non-temporal stores read nothing for ownership). A pass is timed in pieces of
// 16 MB, so that a core taken away for some milliseconds spoils a few times and not all.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { RUNS = 20000, PIECE = 16 << 20 };
static int threads = 2, cpus[1024], patterns = 2;
static size_t bytes = 256u << 20;
static double seconds = 0.5;
static atomic_int arrived, round_number;
static double times[RUNS];
static int runs, stop;
static volatile float sink;

// Waking a sleeping thread would cost as much as a piece takes.
static void meet(void) {
    int round = atomic_load(&round_number);
    if (atomic_fetch_add(&arrived, 1) + 1 == threads) {
        atomic_store(&arrived, 0);
        atomic_fetch_add(&round_number, 1);
        return;
    }
    for (int polls = 0; atomic_load(&round_number) == round; polls++)
        if (polls > 10000) sched_yield();
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static float read_array(const float *a, size_t n) {
#if defined(__AVX512F__)
    __m512 s[8];
    for (int i = 0; i < 8; i++) s[i] = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += 128)
        for (int j = 0; j < 8; j++) s[j] = _mm512_add_ps(s[j], _mm512_load_ps(a + i + 16 * j));
    for (int i = 1; i < 8; i++) s[0] = _mm512_add_ps(s[0], s[i]);
    return _mm512_reduce_add_ps(s[0]);
#else
    float s[64] = {0}, t = 0;
    for (size_t i = 0; i < n; i += 64)
        for (int j = 0; j < 64; j++) s[j] += a[i + j];
    for (int j = 0; j < 64; j++) t += s[j];
    return t;
#endif
}

static void triad(float *a, const float *b, const float *c, size_t n) {
#if defined(__AVX512F__)
    __m512 k = _mm512_set1_ps(0.75f);
    for (size_t i = 0; i < n; i += 64)
        for (int j = 0; j < 64; j += 16)
            _mm512_stream_ps(a + i + j, _mm512_fmadd_ps(_mm512_load_ps(c + i + j), k, _mm512_load_ps(b + i + j)));
    _mm_sfence();
#elif defined(__AVX__)
    __m256 k = _mm256_set1_ps(0.75f);
    for (size_t i = 0; i < n; i += 8)
        _mm256_stream_ps(a + i, _mm256_add_ps(_mm256_mul_ps(_mm256_load_ps(c + i), k), _mm256_load_ps(b + i)));
    _mm_sfence();
#else
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 0.75f * c[i];
#endif
}

static int ascending(const void *a, const void *b) {
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

static void *work(void *arg) {
    int me = (int)(intptr_t)arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[me], &set);
    sched_setaffinity(0, sizeof set, &set);
    size_t part = bytes / threads / 12288 * 12288;
    char *raw = mmap(NULL, part + (4 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    float *a = (float *)(((uintptr_t)raw + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
    madvise(a, part, MADV_HUGEPAGE);
    size_t n = part / 4;
    for (size_t i = 0; i < n; i++) a[i] = (float)(i % 251);
    size_t pieces = part * threads / PIECE;
    if (pieces == 0) pieces = 1;
    for (int pattern = 0; pattern < patterns; pattern++) {
        double begin = now();
        for (int run = 0;; run++) {
            meet();
            double start = now();
            size_t each = (pattern ? n / 3 : n) / pieces / 256 * 256, at = run % pieces * each;
            if (pattern == 0) sink = read_array(a + at, each);
            else triad(a + at, a + n / 3 + at, a + 2 * (n / 3) + at, each);
            meet();
            if (me == 0) {
                times[run] = now() - start;
                runs = run + 1;
                stop = runs == RUNS || (runs >= 5 && now() - begin > seconds);
            }
            meet();
            if (stop) break;
        }
        if (me == 0) {
            qsort(times, runs, sizeof *times, ascending);
            double moved = (double)((pattern ? n / 3 : n) / pieces / 256 * 256) * (pattern ? 12 : 4) * threads / 1e9;
            printf("%s %.3f %.3f\n", pattern ? "triad" : "read", moved / times[0], moved / times[runs / 2]);
        }
        meet();
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) threads = atoi(argv[1]);
    if (argc > 2) bytes = (size_t)atof(argv[2]);
    if (argc > 3) seconds = atof(argv[3]);
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int found = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 1024; cpu++)
        if (CPU_ISSET(cpu, &allowed)) cpus[found++] = cpu;
    if (threads < 1 || threads > found) return fprintf(stderr, "threads: 1 to %d\n", found), 2;
    pthread_t ids[1024];
    for (int i = 1; i < threads; i++) pthread_create(&ids[i], NULL, work, (void *)(intptr_t)i);
    work(NULL);
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    return 0;
}
