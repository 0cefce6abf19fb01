// y = W x, W stored as 4-bit integers with a scale for 128.
//
//   gemv_i4g128_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. n k / 2 + n k / 64 bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is k/128 groups of 64 bytes, of which byte i holds weight i in its low and weight i + 64 in its high four bits;
// scales is half[n][k/128]. A weight is scale (bits - 8). k is a multiple of 128.

#include "gemv.cuh"

namespace {

struct I4G128 : NoRowScale {
    static constexpr unsigned LANE = 32, UNITS = 4, RESIDENT = 2;
    using Scale = unsigned;
    static __device__ Scale scale(const void* scales, unsigned row, unsigned k, unsigned unit, unsigned) {
        return streamed2(static_cast<const __half*>(scales) + static_cast<size_t>(row) * (k / 128) + unit);
    }
    // A unit is a group: a lane's 16 bytes are 16 weights in the first half of it and 16 in the second.
    static __device__ unsigned place(unsigned t, unsigned i) { return t * 16 + i / 2 * 64 + i % 2 * 8; }

    static __device__ __forceinline__ void multiply(float (&c)[4], const uint4& w, const uint4& w8, Scale s, Scale s8,
                                                    const uint4 (&x)[LANE / 8]) {
        float part[4] = {};
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            unsigned a[4], a8[4];
            unpack_int4<8>(word(w, i), a);
            unpack_int4<8>(word(w8, i), a8);
            const uint4 &low = x[i / 2], &high = x[2 + i / 2];
            mma_f16(part, {a[0], a8[0], a[2], a8[2]}, even_and_odd(word(low, i % 2 * 2), word(low, i % 2 * 2 + 1)));
            mma_f16(part, {a[1], a8[1], a[3], a8[3]}, even_and_odd(word(high, i % 2 * 2), word(high, i % 2 * 2 + 1)));
        }
        add_scaled(c, part, half_bits_to_float(s), half_bits_to_float(s8));
    }
};

} // namespace

GEMV_ENTRIES(gemv_i4g128, gemv, I4G128)
