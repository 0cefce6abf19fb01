// y = W x, W stored as GGUF's Q4_0.
//
//   gemv_q4_0_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. 18/32 n k bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is blocks of 32 weights in 18 bytes: a half d, then 16 bytes of which byte i holds weight i in its low and
// weight i + 16 in its high four bits. A weight is d (bits - 8). scales is not used. k is a multiple of 32.

#include "gemv_blocks.cuh"

namespace {

struct Q4_0 {
    static constexpr unsigned BLOCK = 32, BYTES = 18, BLOCKS = 8, LANE = 4, RESIDENT = 3;
    static constexpr bool ALIGNED = false;

    static __device__ __forceinline__ void multiply(float (&c)[4], const StagedRow<ALIGNED>& row,
                                                    const StagedRow<ALIGNED>& row8, unsigned at, const __half* x, unsigned t) {
        unsigned w[4], w8[4];
        unpack_int4<8>(row.at(at + 2), w);
        unpack_int4<8>(row8.at(at + 2), w8);
        const uint2 low = cached8(x + 4 * t), high = cached8(x + 16 + 4 * t);
        float part[4] = {};
        mma_f16(part, {w[0], w8[0], w[2], w8[2]}, even_and_odd(low.x, low.y));
        mma_f16(part, {w[1], w8[1], w[3], w8[3]}, even_and_odd(high.x, high.y));
        add_scaled(c, part, row.half_at(at), row8.half_at(at));
    }
};

} // namespace

GEMV_ENTRIES(gemv_q4_0, gemv_blocks, Q4_0)
