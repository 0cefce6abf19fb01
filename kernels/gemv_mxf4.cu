// y = W x, W stored as MXFP4: e2m1 with a power of two for 32.
//
//   gemv_mxf4_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. n k / 2 + n k / 32 bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is k/2 bytes, byte i of which holds weight 2 i in its low and 2 i + 1 in its high four bits; scales is
// e8m0[n][k/32], 2^(code - 127). k is a multiple of 32.
//
// The four blocks of a unit are multiplied relative to the largest of their scales. What a half then rounds is less than
// 2^-24 of a weight of that block.

#include "gemv.cuh"

namespace {

struct MxF4 : NoRowScale {
    static constexpr unsigned LANE = 32, UNITS = 4, RESIDENT = 2;
    using Scale = unsigned; // the code of the lane's block
    static __device__ Scale scale(const void* scales, unsigned row, unsigned k, unsigned unit, unsigned t) {
        return streamed1(static_cast<const unsigned char*>(scales) + static_cast<size_t>(row) * (k / 32) + unit * 4 + t);
    }
    static __device__ unsigned place(unsigned t, unsigned i) { return in_order<LANE>(t, i); }

    // The largest code of the row's four lanes, and twice the half 2^(code - largest).
    static __device__ __forceinline__ unsigned relative(Scale code, __half2& scale) {
        unsigned largest = max(code, __shfl_xor_sync(0xffffffff, code, 1));
        largest = max(largest, __shfl_xor_sync(0xffffffff, largest, 2));
        const unsigned below = min(largest - code, 25u);
        scale = as_half2((below < 15 ? (15 - below) << 10 : 1024 >> (below - 14)) * 0x10001u);
        return largest;
    }
    static __device__ __forceinline__ float power(unsigned code) {
        return __uint_as_float(code == 0 ? 0x00400000 : code << 23);
    }
    static __device__ __forceinline__ void scale_by(unsigned& weights, __half2 scale) {
        weights = half2_bits(__hmul2(as_half2(weights), scale));
    }

    static __device__ __forceinline__ void multiply(float (&c)[4], const uint4& w, const uint4& w8, Scale s, Scale s8,
                                                    const uint4 (&x)[LANE / 8]) {
        __half2 scale, scale8;
        const unsigned largest = relative(s, scale), largest8 = relative(s8, scale8);
        float part[4] = {};
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
#pragma unroll
            for (unsigned j = 0; j < 2; ++j) {
                FragmentA a;
                unpack_e2m1(word(w, i) >> 16 * j, a.low, a.high);
                unpack_e2m1(word(w8, i) >> 16 * j, a.low8, a.high8);
                scale_by(a.low, scale);
                scale_by(a.high, scale);
                scale_by(a.low8, scale8);
                scale_by(a.high8, scale8);
                mma_f16(part, a, {word(x[i], 2 * j), word(x[i], 2 * j + 1)});
            }
        }
        add_scaled(c, part, power(largest), power(largest8));
    }
};

} // namespace

GEMV_ENTRIES(gemv_mxf4, gemv, MxF4)
