// y = W x, W stored as FP8 (e4m3) with a scale a row.
//
//   gemv_f8_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. n k + 4 n bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is k bytes; scales is float[n], a row's weights are scale * e4m3. k is a multiple of 32. Decoded with integer
// instructions, so that it runs where the hardware knows no FP8; the codes of NaN are taken for 480.

#include "gemv.cuh"

namespace {

struct F8 : NoScales, RowScale {
    static constexpr unsigned LANE = 16, UNITS = 2, RESIDENT = 4;
    static constexpr float FACTOR = 256; // unpack_e4m3 gives 1/256 of a weight
    static __device__ unsigned place(unsigned t, unsigned i) { return in_order<LANE>(t, i); }

    static __device__ __forceinline__ void multiply(float (&c)[4], const uint4& w, const uint4& w8, Scale, Scale,
                                                    const uint4 (&x)[LANE / 8]) {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            FragmentA a;
            unpack_e4m3(word(w, i), a.low, a.high);
            unpack_e4m3(word(w8, i), a.low8, a.high8);
            mma_f16(c, a, {word(x[i / 2], i % 2 * 2), word(x[i / 2], i % 2 * 2 + 1)});
        }
    }
};

} // namespace

GEMV_ENTRIES(gemv_f8, gemv, F8)
