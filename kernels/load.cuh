// Loads of memory that is read once, or whose every pass has to come from the second-level cache.
//
// They skip the first-level cache (.cg), so that a second pass is never served from there and what is used again stays in
// it, and they are volatile, so that a pass is neither dropped nor moved out of its loop.
#pragma once

__device__ __forceinline__ uint4 streamed16(const void* from) {
    uint4 value;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(__cvta_generic_to_global(from)));
    return value;
}

__device__ __forceinline__ unsigned streamed2(const void* from) {
    unsigned short value;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(value) : "l"(__cvta_generic_to_global(from)));
    return value;
}

__device__ __forceinline__ unsigned streamed1(const void* from) {
    unsigned value;
    asm volatile("ld.global.cg.u8 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(from)));
    return value;
}

// What every row needs again, and stays in the first-level cache: x. Volatile too, so that it is loaded where it says.
__device__ __forceinline__ uint4 cached16(const void* from) {
    uint4 value;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(__cvta_generic_to_global(from)));
    return value;
}

__device__ __forceinline__ uint2 cached8(const void* from) {
    uint2 value;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(value.x), "=r"(value.y)
                 : "l"(__cvta_generic_to_global(from)));
    return value;
}
