// y = W x, W stored as bfloat16.
//
//   gemv_bf16_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. 2 n k bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is k bfloat16; scales is not used. k is a multiple of 32.
//
// A half has three bits more than a bfloat16: x goes in as the sum of two bfloat16, which is exact.

#include "gemv.cuh"

namespace {

struct Bf16 : NoScales, NoRowScale {
    static constexpr unsigned LANE = 8, UNITS = 4, RESIDENT = 3;
    static __device__ unsigned place(unsigned t, unsigned i) { return in_order<LANE>(t, i); }

    // The upper halves of two floats, which are their leading eight bits as bfloat16.
    static __device__ __forceinline__ unsigned leading(float2 of) {
        return __byte_perm(__float_as_uint(of.x), __float_as_uint(of.y), 0x7632);
    }
    static __device__ __forceinline__ float less_leading(float of) {
        return of - __uint_as_float(__float_as_uint(of) & 0xffff0000);
    }
    static __device__ __forceinline__ void split(unsigned two_halves, unsigned& high, unsigned& low) {
        const float2 value = __half22float2(as_half2(two_halves));
        high = leading(value);
        low = leading(make_float2(less_leading(value.x), less_leading(value.y)));
    }

    static __device__ __forceinline__ void multiply(float (&c)[4], const uint4& w, const uint4& w8, Scale, Scale,
                                                    const uint4 (&x)[LANE / 8]) {
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            const FragmentA a = {word(w, 2 * i), word(w8, 2 * i), word(w, 2 * i + 1), word(w8, 2 * i + 1)};
            FragmentB high, low;
            split(word(x[0], 2 * i), high.low, low.low);
            split(word(x[0], 2 * i + 1), high.high, low.high);
            mma_bf16(c, a, high);
            mma_bf16(c, a, low);
        }
    }
};

} // namespace

GEMV_ENTRIES(gemv_bf16, gemv, Bf16)
