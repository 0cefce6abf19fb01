// Multiplication of 16 x 16 by 16 x 8 halves by a warp, summed in FP32, as PTX's mma.sync.m16n8k16 lays it out: with
// lane l at g = l / 4 and t = l % 4, A's registers hold row g, row g + 8, and both again, of k 2 t, 2 t + 1 and then of k
// 2 t + 8, 2 t + 9; B's hold these k of column g; C's hold columns 2 t and 2 t + 1 of row g, then of row g + 8.
//
// A sum does not depend on the order of its terms: any four k may be a lane's own, if A and B agree on them.
#pragma once

#include <cuda_fp16.h>

struct FragmentA {
    unsigned low, low8, high, high8; // row g, row g + 8; then their two other k
};
struct FragmentB {
    unsigned low, high;
};

__device__ __forceinline__ void mma_f16(float (&c)[4], const FragmentA& a, const FragmentB& b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.low), "r"(a.low8), "r"(a.high), "r"(a.high8), "r"(b.low), "r"(b.high));
}

__device__ __forceinline__ void mma_bf16(float (&c)[4], const FragmentA& a, const FragmentB& b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.low), "r"(a.low8), "r"(a.high), "r"(a.high8), "r"(b.low), "r"(b.high));
}

// The words of a register quadruple by number.
__device__ __forceinline__ unsigned word(const uint4& of, unsigned i) { return i == 0 ? of.x : i == 1 ? of.y : i == 2 ? of.z : of.w; }

__device__ __forceinline__ unsigned half2_bits(__half2 of) { return *reinterpret_cast<const unsigned*>(&of); }
__device__ __forceinline__ __half2 as_half2(unsigned bits) { return *reinterpret_cast<const __half2*>(&bits); }
__device__ __forceinline__ float half_bits_to_float(unsigned bits) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
