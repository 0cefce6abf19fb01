#!/usr/bin/env python3
"""meter.py PCI PERIOD_S: prints readings of a GPU's power, one JSON object a line, until it is killed.

{"at": CLOCK_BOOTTIME, "watts": ..., "joules": ... or null}. The first line is {"source": ...}. NVML is asked through
ctypes, so nothing needs to be installed; where it cannot be loaded, nvidia-smi is. Standard library only.
"""

import ctypes
import json
import subprocess
import sys
import time

INSTANT_POWER = 186  # NVML_FI_DEV_POWER_INSTANT, milliwatts


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t; the values read here are unsigned int."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("outcome", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    ]


def say(**line):
    print(json.dumps(line), flush=True)


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def library(place):
    """Functions that read watts and joules, and what the watts are."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device = ctypes.c_void_p()
    if code := nvml.nvmlInit_v2():
        raise OSError(f"nvmlInit_v2: NVML error {code}")
    try:
        code = nvml.nvmlDeviceGetHandleByPciBusId_v2(place.encode(), ctypes.byref(device))
    except AttributeError:
        code = 1
    # An integrated GPU is on no bus.
    if code and (code := nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))):
        raise OSError(f"nvmlDeviceGetHandleByIndex_v2: NVML error {code}")

    def instant():
        field = FieldValue(field=INSTANT_POWER)
        if nvml.nvmlDeviceGetFieldValues(device, 1, ctypes.byref(field)) or field.outcome:
            return None
        return (field.value & 0xFFFFFFFF) / 1e3

    def averaged():
        milliwatts = ctypes.c_uint()
        return None if nvml.nvmlDeviceGetPowerUsage(device, ctypes.byref(milliwatts)) else milliwatts.value / 1e3

    def joules():
        millijoules = ctypes.c_ulonglong()
        try:
            failed = nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(millijoules))
        except AttributeError:
            return None
        return None if failed else millijoules.value / 1e3

    for watts, what in ((instant, "NVML, instantaneous power"), (averaged, "NVML, power as it averages it")):
        try:
            if watts() is not None:
                return watts, joules, what
        except AttributeError:
            continue
    raise OSError("NVML tells no power of this GPU")


def sample(place, period):
    watts, joules, what = library(place)
    say(source=f"{what}, every {period * 1e3:.0f} ms")
    due = now()
    while True:
        before = now()
        value = watts()
        at = (before + now()) / 2
        if value is not None:
            say(at=at, watts=value, joules=joules())
        # From the time that was due, so that slow calls do not lower the rate.
        due = max(due + period, now())
        time.sleep(due - now())


def command(place, period):
    """nvidia-smi stands in: the line comes a little after the reading, and there is no counter."""
    query = ["nvidia-smi", f"--id={place}", "--query-gpu=power.draw", "--format=csv,noheader,nounits"]
    # Under 100 ms it does not keep up.
    period = max(period, 0.1)
    with subprocess.Popen([*query, f"--loop-ms={period * 1e3:.0f}"], stdout=subprocess.PIPE, text=True) as process:
        for count, line in enumerate(process.stdout):
            if count == 0:
                say(source=f"nvidia-smi power.draw, every {period * 1e3:.0f} ms")
            say(at=now(), watts=float(line), joules=None)


def main():
    place, period = sys.argv[1], float(sys.argv[2])
    try:
        sample(place, period)
    except (OSError, AttributeError) as error:
        try:
            command(place, period)
        except (OSError, ValueError) as also:
            sys.exit(f"{error}; {also}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
