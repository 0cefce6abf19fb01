// y = W x, W stored as NVFP4: e2m1 with an e4m3 scale for 16.
//
//   gemv_nvf4_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. n k / 2 + n k / 16 bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is k/2 bytes, byte i of which holds weight 2 i in its low and 2 i + 1 in its high four bits; scales is
// e4m3[n][k/16]; the tensor's scale is in alpha. k is a multiple of 32. Weight times scale is exact as a half.

#include "gemv.cuh"

namespace {

struct NvF4 : NoRowScale {
    static constexpr unsigned LANE = 32, UNITS = 4, RESIDENT = 2;
    using Scale = unsigned; // of the lane's first and second 16 weights
    static __device__ Scale scale(const void* scales, unsigned row, unsigned k, unsigned unit, unsigned t) {
        return streamed2(static_cast<const unsigned char*>(scales) + static_cast<size_t>(row) * (k / 16) + unit * 8 + t * 2);
    }
    static __device__ unsigned place(unsigned t, unsigned i) { return in_order<LANE>(t, i); }

    // Both scales twice, as halves.
    static __device__ __forceinline__ void spread(Scale of, __half2 (&twice)[2]) {
        unsigned both, unused;
        unpack_e4m3(of, both, unused);
        const unsigned value = half2_bits(__hmul2(as_half2(both), as_half2(0x5c005c00))); // 256
        twice[0] = as_half2(__byte_perm(value, 0, 0x1010));
        twice[1] = as_half2(__byte_perm(value, 0, 0x3232));
    }
    static __device__ __forceinline__ void scale_by(unsigned& weights, __half2 scale) {
        weights = half2_bits(__hmul2(as_half2(weights), scale));
    }

    static __device__ __forceinline__ void multiply(float (&c)[4], const uint4& w, const uint4& w8, Scale s, Scale s8,
                                                    const uint4 (&x)[LANE / 8]) {
        __half2 scales[2], scales8[2];
        spread(s, scales);
        spread(s8, scales8);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
#pragma unroll
            for (unsigned j = 0; j < 2; ++j) {
                FragmentA a;
                unpack_e2m1(word(w, i) >> 16 * j, a.low, a.high);
                unpack_e2m1(word(w8, i) >> 16 * j, a.low8, a.high8);
                scale_by(a.low, scales[i / 2]);
                scale_by(a.high, scales[i / 2]);
                scale_by(a.low8, scales8[i / 2]);
                scale_by(a.high8, scales8[i / 2]);
                mma_f16(c, a, {word(x[i], 2 * j), word(x[i], 2 * j + 1)});
            }
        }
    }
};

} // namespace

GEMV_ENTRIES(gemv_nvf4, gemv, NvF4)
