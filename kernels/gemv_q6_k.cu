// y = W x, W stored as GGUF's Q6_K.
//
//   gemv_q6_k_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const half* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 16) blocks. 210/256 n k bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is super-blocks of 256 weights in 210 bytes: 128 bytes with the lower four bits of each weight, 64 with the upper two, 16
// signed bytes s, one for 16 weights, and a half d. With i below 64, byte 64 h + i of the first holds weight 128 h + i in its low
// and 128 h + 64 + i in its high four bits; with i below 32, byte 32 h + i of the second holds weights 128 h + 32 j + i in its
// bits 2 j and 2 j + 1. A weight is d s (bits - 32). scales is not used. k is a multiple of 256.

#include "gemv_blocks.cuh"

namespace {

struct Q6_K {
    static constexpr unsigned BLOCK = 256, BYTES = 210, BLOCKS = 1, LANE = 4, RESIDENT = 3;
    static constexpr bool ALIGNED = false;
    using Row = StagedRow<ALIGNED>;

    // d s of two neighbours, of the half that holds both s. As unpack_int8.
    static __device__ __forceinline__ float2 scales(float d, unsigned both) {
        const unsigned biased = __byte_perm(both ^ 0x8080, 0x64646464, 0x4140);
        const float2 s = __half22float2(__hsub2(as_half2(biased), as_half2(0x64806480)));
        return {d * s.x, d * s.y};
    }
    // Four weights as halves of bits - 32, in order: of number j of the four that share a byte of the upper bits.
    static __device__ __forceinline__ void unpack(unsigned nibbles, unsigned upper, unsigned j, unsigned& low, unsigned& high) {
        const unsigned lower = (j < 2 ? nibbles : nibbles >> 4) & 0x0f0f0f0f;
        const unsigned bits = and_or(j < 2 ? upper << (4 - 2 * j) : upper >> (2 * j - 4), 0x30303030, lower);
        const __half2 offset = as_half2(0x64206420); // 1024 + 32
        low = half2_bits(__hsub2(as_half2(__byte_perm(bits, 0x64646464, 0x4140)), offset));
        high = half2_bits(__hsub2(as_half2(__byte_perm(bits, 0x64646464, 0x4342)), offset));
    }

    static __device__ __forceinline__ void multiply(float (&c)[4], const Row& row, const Row& row8, unsigned at,
                                                    const __half* x, unsigned t) {
        const float d = row.half_at(at + 208), d8 = row8.half_at(at + 208);
#pragma unroll 1
        for (unsigned h = 0; h < 2; ++h) {
            unsigned upper[2], upper8[2], nibbles[2][2], nibbles8[2][2];
#pragma unroll
            for (unsigned sixteen = 0; sixteen < 2; ++sixteen) {
                upper[sixteen] = row.at(at + 128 + 32 * h + 16 * sixteen);
                upper8[sixteen] = row8.at(at + 128 + 32 * h + 16 * sixteen);
#pragma unroll
                for (unsigned odd = 0; odd < 2; ++odd) {
                    nibbles[odd][sixteen] = row.at(at + 64 * h + 32 * odd + 16 * sixteen);
                    nibbles8[odd][sixteen] = row8.at(at + 64 * h + 32 * odd + 16 * sixteen);
                }
            }
#pragma unroll
            for (unsigned j = 0; j < 4; ++j) {
                const float2 s = scales(d, row.two_at(at + 192 + 8 * h + 2 * j));
                const float2 s8 = scales(d8, row8.two_at(at + 192 + 8 * h + 2 * j));
#pragma unroll
                for (unsigned sixteen = 0; sixteen < 2; ++sixteen) {
                    FragmentA a;
                    unpack(nibbles[j % 2][sixteen], upper[sixteen], j, a.low, a.high);
                    unpack(nibbles8[j % 2][sixteen], upper8[sixteen], j, a.low8, a.high8);
                    const uint2 four = cached8(x + 128 * h + 32 * j + 16 * sixteen + 4 * t);
                    float part[4] = {};
                    mma_f16(part, a, {four.x, four.y});
                    add_scaled(c, part, sixteen ? s.y : s.x, sixteen ? s8.y : s8.x);
                }
            }
        }
    }
};

} // namespace

GEMV_ENTRIES(gemv_q6_k, gemv_blocks, Q6_K)
