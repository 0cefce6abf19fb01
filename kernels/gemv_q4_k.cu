// y = W x, W stored as GGUF's Q4_K.
//
//   gemv_q4_k_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. 144/256 n k bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is super-blocks of 256 weights in 144 bytes: a half d, a half dmin, 12 bytes with eight 6-bit scales s and eight 6-bit
// minima m, one of each for 32 weights, and 128 bytes; byte 32 j + i of these holds weight 64 j + i in its low and weight
// 64 j + 32 + i in its high four bits. A weight is d s bits - dmin m. scales is not used. k is a multiple of 256.
//
// The 12 bytes are three words: the lower six bits of the first hold s 0 to 3, of the second m 0 to 3; the third holds the
// lower four bits of s 4 to 7 and of m 4 to 7, whose upper two are the upper two of the first two words.

#include "gemv_blocks.cuh"

namespace {

struct Q4_K {
    static constexpr unsigned BLOCK = 256, BYTES = 144, BLOCKS = 2, LANE = 8, RESIDENT = 2;
    static constexpr bool ALIGNED = true;

    struct Scales {
        float d, least;
        unsigned s[2], m[2]; // four bytes each

        __device__ __forceinline__ explicit Scales(const StagedRow<ALIGNED>& row, unsigned at)
            : d(row.half_at(at)), least(row.half_at(at + 2)) {
            const unsigned first = row.word_at(at + 4), second = row.word_at(at + 8), third = row.word_at(at + 12);
            s[0] = first & 0x3f3f3f3f;
            m[0] = second & 0x3f3f3f3f;
            s[1] = (third & 0x0f0f0f0f) | (first >> 2 & 0x30303030);
            m[1] = (third >> 4 & 0x0f0f0f0f) | (second >> 2 & 0x30303030);
        }
        // d s and -dmin m of the 32 weights number i.
        __device__ __forceinline__ float scale(unsigned i) const { return d * byte(i < 4 ? s[0] : s[1], i % 4); }
        __device__ __forceinline__ float minimum(unsigned i) const { return -least * byte(i < 4 ? m[0] : m[1], i % 4); }
        static __device__ __forceinline__ float byte(unsigned of, unsigned i) { return static_cast<float>(of >> 8 * i & 0xff); }
    };

    static __device__ __forceinline__ void multiply(float (&c)[4], const StagedRow<ALIGNED>& row,
                                                    const StagedRow<ALIGNED>& row8, unsigned at, const __half* x, unsigned t) {
        const Scales scales(row, at), scales8(row8, at);
#pragma unroll 1
        for (unsigned j = 0; j < 4; ++j) {
            const uint2 bits = row.pair_at(at + 16 + 32 * j), bits8 = row8.pair_at(at + 16 + 32 * j);
            unsigned w[2][4], w8[2][4];
            unpack_int4<0>(bits.x, w[0]);
            unpack_int4<0>(bits.y, w[1]);
            unpack_int4<0>(bits8.x, w8[0]);
            unpack_int4<0>(bits8.y, w8[1]);
#pragma unroll
            for (unsigned high = 0; high < 2; ++high) {
                const uint4 v = cached16(x + 64 * j + 32 * high + 8 * t);
                float part[4] = {}, sum[4] = {}; // of the bits times x, and of x
#pragma unroll
                for (unsigned i = 0; i < 2; ++i) {
                    const FragmentB b = even_and_odd(word(v, 2 * i), word(v, 2 * i + 1));
                    mma_f16(part, {w[i][high], w8[i][high], w[i][high + 2], w8[i][high + 2]}, b);
                    mma_f16(sum, {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00}, b); // ones
                }
                add_scaled(c, part, scales.scale(2 * j + high), scales8.scale(2 * j + high));
                add_scaled(c, sum, scales.minimum(2 * j + high), scales8.minimum(2 * j + high));
            }
        }
    }
};

} // namespace

GEMV_ENTRIES(gemv_q4_k, gemv_blocks, Q4_K)
