// y = W x, W stored as GGUF's Q8_0.
//
//   gemv_q8_0_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. 34/32 n k bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is blocks of 32 weights in 34 bytes: a half d, then 32 signed bytes. A weight is d byte. scales is not used. k is a
// multiple of 32.

#include "gemv_blocks.cuh"

namespace {

struct Q8_0 {
    static constexpr unsigned BLOCK = 32, BYTES = 34, BLOCKS = 8, LANE = 4, RESIDENT = 3;
    static constexpr bool ALIGNED = false;

    static __device__ __forceinline__ void multiply(float (&c)[4], const StagedRow<ALIGNED>& row,
                                                    const StagedRow<ALIGNED>& row8, unsigned at, const __half* x, unsigned t) {
        float part[4] = {};
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            FragmentA a;
            unpack_int8(row.at(at + 2 + 16 * half), a.low, a.high);
            unpack_int8(row8.at(at + 2 + 16 * half), a.low8, a.high8);
            const uint2 four = cached8(x + 16 * half + 4 * t);
            mma_f16(part, a, {four.x, four.y});
        }
        add_scaled(c, part, row.half_at(at), row8.half_at(at));
    }
};

} // namespace

GEMV_ENTRIES(gemv_q8_0, gemv_blocks, Q8_0)
