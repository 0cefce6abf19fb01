// Attention of one new token over a cache of fp16 keys and values: what decoding a long context costs.
//
//   attention_split(const half* q, const half* k, const half* v, float* work, uint32 heads, uint32 kv_heads, uint32 dim,
//                   uint32 context, uint32 splits, float scale)
//
// batch * kv_heads * splits blocks of 128 threads, block (b * kv_heads + h) * splits + s. q is [batch][heads][dim]; k and v are
// [batch][kv_heads][context][dim]; dim is a multiple of 32 up to 256, heads / kv_heads at most 16. A block reads its part of
// the tokens of one key head for all heads that share it: in all 4 batch kv_heads context dim bytes, and
// 4 batch heads context dim FLOPs. work[((b * heads + head) * splits + s) * (dim + 2)] = the largest score (scale q k), the
// sum of exp(score - largest), and the sum of exp(score - largest) v; -inf, 0 and zeros of a part without tokens.
//
//   attention_merge(const float* work, float* out, uint32 dim, uint32 splits)
//
// batch * heads blocks of 128 threads. Reads 4 batch heads splits (dim + 2) bytes; out[batch][heads][dim].
//
// The four warps of a block take 16 tokens each at a time and keep sums of their own, which are put together at the end. The
// heads of the group are the 16 rows of A, of which those past the group are zeros. Weights exp(score - largest) go in as
// the sum of two halves, so that their rounding does not limit the result.

#include "load.cuh"
#include "fragment.cuh"

namespace {

constexpr unsigned WARPS = 4, ROWS = 16, TOKENS = 16, MAX_DIM = 256;
constexpr unsigned Q_PITCH = MAX_DIM + 8; // halves: rows of Q begin in different banks

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000); }

// exp(from - to) that is 0 where nothing has been summed yet.
__device__ __forceinline__ float decay(float from, float to) { return from == minus_infinity() ? 0 : expf(from - to); }

// Largest and sum over the four lanes of a row.
__device__ __forceinline__ float row_max(float of) {
    of = fmaxf(of, __shfl_xor_sync(0xffffffff, of, 1));
    return fmaxf(of, __shfl_xor_sync(0xffffffff, of, 2));
}
__device__ __forceinline__ float row_sum(float of) {
    of += __shfl_xor_sync(0xffffffff, of, 1);
    return of + __shfl_xor_sync(0xffffffff, of, 2);
}

// Two floats as halves, and what the halves leave of them as halves.
__device__ __forceinline__ void split(float x, float y, unsigned& high, unsigned& low) {
    const __half2 rounded = __floats2half2_rn(x, y);
    const float2 back = __half22float2(rounded);
    high = half2_bits(rounded);
    low = half2_bits(__floats2half2_rn(x - back.x, y - back.y));
}

struct Shared {
    __half q[ROWS][Q_PITCH];
    float values[ROWS][MAX_DIM];
    float largest[WARPS][ROWS], sum[WARPS][ROWS];
};

// CHUNKS of 64 places cover dim; of the last one only half may be in use.
template <unsigned CHUNKS>
__device__ __forceinline__ void attend(Shared& shared, const __half* k, const __half* v, unsigned dim, unsigned begin,
                                       unsigned end, float scale) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    float largest[2] = {minus_infinity(), minus_infinity()}, sum[2] = {}; // of row g and row g + 8
    constexpr bool AHEAD = CHUNKS <= 2; // registers suffice to have all of K and V under way at once
    float values[CHUNKS][8][4] = {}; // [chunk][i]: places 8 n + i of the chunk as columns n

#pragma unroll 1
    for (unsigned first = begin + warp * TOKENS; first < end; first += WARPS * TOKENS) {
        // Rows of K and V past the end repeat the last, and weigh nothing below. Places past dim repeat the first, and are
        // left out where they would count.
        const __half *key[2], *value[4];
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            key[i] = k + static_cast<size_t>(min(first + 8 * i + g, end - 1)) * dim + 8 * t;
        }
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            value[i] = v + static_cast<size_t>(min(first + i / 2 * 8 + 2 * t + i % 2, end - 1)) * dim;
        }
        uint4 keys[2 * CHUNKS][2], values_ahead[CHUNKS][4];
        const auto load_keys = [&](unsigned j) {
#pragma unroll
            for (unsigned i = 0; i < 2; ++i) {
                keys[j][i] = streamed16(key[i] + (32 * j < dim ? 32 * j : 0));
            }
        };
        const auto load_values = [&](unsigned chunk) {
            const unsigned place = 64 * chunk + 8 * g;
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                values_ahead[chunk][i] = streamed16(value[i] + (place < dim ? place : 0));
            }
        };
        if (AHEAD) {
#pragma unroll
            for (unsigned j = 0; j < 2 * CHUNKS; ++j) {
                load_keys(j);
            }
#pragma unroll
            for (unsigned chunk = 0; chunk < CHUNKS; ++chunk) {
                load_values(chunk);
            }
        }
        __syncwarp(); // not for the lanes: ptxas moves no load down past this

        float score[2][4] = {}; // of tokens first + 8 i + column
#pragma unroll
        for (unsigned j = 0; j < 2 * CHUNKS; ++j) {
            if (!AHEAD) {
                load_keys(j);
            }
            if (32 * j < dim) {
                const uint4 q = *reinterpret_cast<const uint4*>(&shared.q[g][32 * j + 8 * t]);
                const uint4 q8 = *reinterpret_cast<const uint4*>(&shared.q[g + 8][32 * j + 8 * t]);
#pragma unroll
                for (unsigned i = 0; i < 2; ++i) {
                    const uint4& of = keys[j][i];
                    mma_f16(score[i], {q.x, q8.x, q.y, q8.y}, {of.x, of.y});
                    mma_f16(score[i], {q.z, q8.z, q.w, q8.w}, {of.z, of.w});
                }
            }
        }

        FragmentA high, low;
        float weight[2][4], shrink[2];
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            float next = largest[half];
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                const unsigned token = first + i / 2 * 8 + 2 * t + i % 2;
                float& of = score[i / 2][2 * half + i % 2];
                of = token < end ? scale * of : minus_infinity();
                next = fmaxf(next, of);
            }
            next = row_max(next);
            shrink[half] = decay(largest[half], next);
            largest[half] = next;
            sum[half] *= shrink[half];
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                weight[half][i] = expf(score[i / 2][2 * half + i % 2] - next);
                sum[half] += weight[half][i];
            }
        }
        split(weight[0][0], weight[0][1], high.low, low.low);
        split(weight[1][0], weight[1][1], high.low8, low.low8);
        split(weight[0][2], weight[0][3], high.high, low.high);
        split(weight[1][2], weight[1][3], high.high8, low.high8);

        // A lane has eight places of the four tokens that are its k, which are one column of eight mma.
#pragma unroll
        for (unsigned chunk = 0; chunk < CHUNKS; ++chunk) {
            if (!AHEAD) {
                load_values(chunk);
            }
            const uint4(&of)[4] = values_ahead[chunk];
#pragma unroll
            for (unsigned i = 0; i < 8; ++i) {
                float(&c)[4] = values[chunk][i];
                c[0] *= shrink[0];
                c[1] *= shrink[0];
                c[2] *= shrink[1];
                c[3] *= shrink[1];
                const unsigned take = i % 2 == 0 ? 0x5410 : 0x7632;
                const FragmentB b = {__byte_perm(word(of[0], i / 2), word(of[1], i / 2), take),
                                     __byte_perm(word(of[2], i / 2), word(of[3], i / 2), take)};
                mma_f16(c, high, b);
                mma_f16(c, low, b);
            }
        }
    }

#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
        sum[half] = row_sum(sum[half]);
        if (t == 0) {
            shared.largest[warp][g + 8 * half] = largest[half];
            shared.sum[warp][g + 8 * half] = sum[half];
        }
    }
    __syncthreads();
    float shrink[2];
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
        float all = minus_infinity();
#pragma unroll
        for (unsigned w = 0; w < WARPS; ++w) {
            all = fmaxf(all, shared.largest[w][g + 8 * half]);
        }
        shrink[half] = decay(largest[half], all);
    }
    // One warp after the other, so that the order of the sums, and with it the result, is always the same.
#pragma unroll 1
    for (unsigned w = 0; w < WARPS; ++w) {
        if (w == warp) {
#pragma unroll
            for (unsigned chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
                for (unsigned i = 0; i < 8; ++i) {
#pragma unroll
                    for (unsigned j = 0; j < 4; ++j) {
                        const unsigned place = 64 * chunk + 8 * (2 * t + j % 2) + i;
                        if (place < dim) {
                            float& to = shared.values[g + 8 * (j / 2)][place];
                            const float more = shrink[j / 2] * values[chunk][i][j];
                            to = w == 0 ? more : to + more;
                        }
                    }
                }
            }
        }
        __syncthreads();
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(128)
    attention_split(const __half* q, const __half* k, const __half* v, float* work, unsigned heads, unsigned kv_heads,
                    unsigned dim, unsigned context, unsigned splits, float scale) {
    __shared__ Shared shared;
    const unsigned split = blockIdx.x % splits, kv_head = blockIdx.x / splits % kv_heads, of = blockIdx.x / splits / kv_heads;
    const unsigned group = heads / kv_heads, first_head = kv_head * group;
    const unsigned part = (context + splits - 1) / splits, begin = min(split * part, context), end = min(begin + part, context);

    for (unsigned i = threadIdx.x * 8; i < ROWS * dim; i += blockDim.x * 8) {
        const unsigned row = i / dim, at = i % dim;
        const size_t from = (static_cast<size_t>(of) * heads + first_head + row) * dim + at;
        *reinterpret_cast<uint4*>(&shared.q[row][at]) = row < group ? cached16(q + from) : make_uint4(0, 0, 0, 0);
    }
    __syncthreads();

    const size_t cache = (static_cast<size_t>(of) * kv_heads + kv_head) * context * dim;
    switch ((dim + 63) / 64) {
    case 1: attend<1>(shared, k + cache, v + cache, dim, begin, end, scale); break;
    case 2: attend<2>(shared, k + cache, v + cache, dim, begin, end, scale); break;
    case 3: attend<3>(shared, k + cache, v + cache, dim, begin, end, scale); break;
    default: attend<4>(shared, k + cache, v + cache, dim, begin, end, scale); break;
    }

    for (unsigned row = 0; row < group; ++row) {
        float* to = work + ((static_cast<size_t>(of) * heads + first_head + row) * splits + split) * (dim + 2);
        float largest = minus_infinity(), sum = 0;
#pragma unroll
        for (unsigned w = 0; w < WARPS; ++w) {
            largest = fmaxf(largest, shared.largest[w][row]);
        }
#pragma unroll
        for (unsigned w = 0; w < WARPS; ++w) {
            sum += decay(shared.largest[w][row], largest) * shared.sum[w][row];
        }
        if (threadIdx.x == 0) {
            to[0] = largest;
            to[1] = sum;
        }
        for (unsigned i = threadIdx.x; i < dim; i += blockDim.x) {
            to[2 + i] = shared.values[row][i];
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) attention_merge(const float* work, float* out, unsigned dim, unsigned splits) {
    const float* from = work + static_cast<size_t>(blockIdx.x) * splits * (dim + 2);
    float largest = minus_infinity();
    for (unsigned s = 0; s < splits; ++s) {
        largest = fmaxf(largest, from[static_cast<size_t>(s) * (dim + 2)]);
    }
    for (unsigned i = threadIdx.x; i < dim; i += blockDim.x) {
        float sum = 0, value = 0;
        for (unsigned s = 0; s < splits; ++s) {
            const float* part = from + static_cast<size_t>(s) * (dim + 2);
            const float weight = decay(part[0], largest);
            sum = fmaf(weight, part[1], sum);
            value = fmaf(weight, part[2 + i], value);
        }
        out[static_cast<size_t>(blockIdx.x) * dim + i] = sum == 0 ? 0 : value / sum;
    }
}
