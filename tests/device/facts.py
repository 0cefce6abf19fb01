#!/usr/bin/env python3
"""Prints what the driver says of the first GPU as one JSON object; exit code 1 with the reason where there is none.

A program of its own, because a sick driver hangs in cuInit. Standard library only.
"""

import ctypes
import json
import sys

MULTIPROCESSORS, INTEGRATED, L2_BYTES, MAJOR, MINOR, MODE = 16, 18, 38, 75, 76, 20


def main():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no driver: {error}"

    def call(name, *arguments):
        code = getattr(cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            try:
                cuda.cuGetErrorName(code, ctypes.byref(text))
            except AttributeError:
                pass
            raise OSError(f"{name}: {(text.value or str(code).encode()).decode()}")

    try:
        call("cuInit", 0)
        version, device = ctypes.c_int(), ctypes.c_int()
        call("cuDriverGetVersion", ctypes.byref(version))
        call("cuDeviceGet", ctypes.byref(device), 0)
        name, place = ctypes.create_string_buffer(256), ctypes.create_string_buffer(64)
        call("cuDeviceGetName", name, len(name), device)
        call("cuDeviceGetPCIBusId", place, len(place), device)
        memory = ctypes.c_size_t()
        call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)

        def attribute(which):
            value = ctypes.c_int()
            call("cuDeviceGetAttribute", ctypes.byref(value), which, device)
            return value.value

        facts = {
            "name": name.value.decode(errors="replace"),
            "pci": place.value.decode(errors="replace"),
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "memory_bytes": memory.value,
            "capability": f"{attribute(MAJOR)}.{attribute(MINOR)}",
            "sm_count": attribute(MULTIPROCESSORS),
            "l2_bytes": attribute(L2_BYTES),
            "integrated": attribute(INTEGRATED) != 0,
            # 0 shared, 2 nobody may, 3 one process.
            "compute_mode": attribute(MODE),
        }
    except (OSError, AttributeError) as error:
        return str(error)
    print(json.dumps(facts))
    return None


if __name__ == "__main__":
    reason = main()
    if reason:
        sys.exit(reason)
