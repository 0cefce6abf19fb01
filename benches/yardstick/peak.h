// The frame of a register-only loop: pins threads, times chains(), prints best and median of the sum over threads.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 4096 };
static int cpus[1024];
static double seconds = 0.3;
static double best[1024], median[1024];
static pthread_barrier_t barrier;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

static void *work(void *arg) {
    int me = (int)(intptr_t)arg, runs = 0;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[me], &set);
    sched_setaffinity(0, sizeof set, &set);
    double *times = malloc(MOST * sizeof *times);
    pthread_barrier_wait(&barrier);
    for (double end = now() + 0.05; now() < end;) chains();
    for (double end = now() + seconds; now() < end && runs < MOST;) {
        double start = now();
        if (chains() != 0) exit((fprintf(stderr, "wrong result\n"), 1));
        times[runs++] = now() - start;
    }
    qsort(times, runs, sizeof *times, ascending);
    best[me] = OPERATIONS / times[0] / 1e9;
    median[me] = OPERATIONS / times[runs / 2] / 1e9;
    free(times);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1, found = 0;
    if (argc > 2) seconds = atof(argv[2]);
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 1024; cpu++)
        if (CPU_ISSET(cpu, &allowed)) cpus[found++] = cpu;
    if (threads < 1 || threads > found) return fprintf(stderr, "threads: 1 to %d\n", found), 2;
    pthread_barrier_init(&barrier, NULL, threads);
    pthread_t ids[1024];
    for (int i = 1; i < threads; i++) pthread_create(&ids[i], NULL, work, (void *)(intptr_t)i);
    work(NULL);
    double b = best[0], m = median[0];
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL), b += best[i], m += median[i];
    printf("peak %.3f %.3f\n", b, m);
    return 0;
}
