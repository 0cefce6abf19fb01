/* A library that answers like NVIDIA's for one GPU, in a way chosen when it is compiled:
 * OK, NOT_SUPPORTED (Orin), LOST (a card that fell off the bus after the start), BARE (almost no symbol), SLOW. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, LOST = 15 };

static int answer(void) {
#if defined(NOT_SUPPORTED_ALL)
    return NOT_SUPPORTED;
#elif defined(LOST_ALL)
    return LOST;
#else
    return SUCCESS;
#endif
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)0x10;
    return index == 0 ? SUCCESS : 6;
}

#ifndef BARE
int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "580.173.02");
    return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
#ifdef NOT_SUPPORTED_ALL
    snprintf(name, length, "Orin (nvgpu)");
#else
    snprintf(name, length, "NVIDIA GB10");
#endif
    return SUCCESS;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *value) {
    (void)device; (void)sensor;
    *value = 41;
    return answer();
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *value) {
    (void)device;
#ifdef SLOW
    sleep(1);
#endif
    *value = 4250;
    return answer();
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned value[2]) {
    (void)device;
    value[0] = 37;
    value[1] = 5;
    return answer();
}
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *value) {
    (void)device;
    *value = 2411;
    /* 1 is the SMs' clock; GB10 does not tell that of its memory. */
    return type == 1 ? answer() : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned *value) {
    (void)device; (void)type;
    *value = 3003;
    return answer();
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *value) {
    (void)device;
    *value = 0x21;
    return answer();
}
#endif
