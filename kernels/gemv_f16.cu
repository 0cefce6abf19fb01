// y = W x, W stored as fp16.
//
//   gemv_f16_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. 2 n k bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is k halves; scales is not used. k is a multiple of 32.

#include "gemv.cuh"

namespace {

struct F16 : NoScales, NoRowScale {
    static constexpr unsigned LANE = 8, UNITS = 4, RESIDENT = 3;
    static __device__ unsigned place(unsigned t, unsigned i) { return in_order<LANE>(t, i); }

    static __device__ __forceinline__ void multiply(float (&c)[4], const uint4& w, const uint4& w8, Scale, Scale,
                                                    const uint4 (&x)[LANE / 8]) {
        mma_f16(c, {w.x, w8.x, w.y, w8.y}, {x[0].x, x[0].y});
        mma_f16(c, {w.z, w8.z, w.w, w8.w}, {x[0].z, x[0].w});
    }
};

} // namespace

GEMV_ENTRIES(gemv_f16, gemv, F16)
