// y = W x for a few vectors at once, W in a stored format: what is common to all formats but f32.
//
// A block takes 16 rows of W at a time, and its eight warps share the k of these rows in steps. In a warp, lane l is at
// place t = l % 4 of row g = l / 4, and of row g + 8: the layout of mma.sync.m16n8k16, whose A is 16 rows of W and whose B is
// up to eight vectors x. A sum does not depend on the order of its terms, so a lane takes 16 bytes on end of its rows, and
// the same places of its vector, and calls any four of them "its k" of one mma. Tensor cores multiply exactly and add in
// FP32; the cost of decoding W is then paid once for all vectors.
//
// Columns past the batch repeat the last vector and are dropped at the end, as are rows past n.
#pragma once

#include "load.cuh"
#include "fragment.cuh"

constexpr unsigned GEMV_WARPS = 8;
constexpr unsigned GEMV_ROWS = 16;

// c += scale of each row * part
__device__ __forceinline__ void add_scaled(float (&c)[4], const float (&part)[4], float scale, float scale8) {
    c[0] = fmaf(scale, part[0], c[0]);
    c[1] = fmaf(scale, part[1], c[1]);
    c[2] = fmaf(scale8, part[2], c[2]);
    c[3] = fmaf(scale8, part[3], c[3]);
}

// (from & mask) | with, in one instruction: of two constants the compiler makes two.
__device__ __forceinline__ unsigned and_or(unsigned from, unsigned mask, unsigned with) {
    unsigned result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(from), "r"(mask), "r"(with));
    return result;
}

// Eight 4-bit integers n of a word as halves n - OFFSET, four half2s in the order (0, 4), (1, 5), (2, 6), (3, 7) of nibbles.
// 0x6400 is 1024, whose last bit is worth 1: a nibble put there is 1024 + n, and one put a nibble higher 1024 + 16 n.
template <unsigned OFFSET> __device__ __forceinline__ void unpack_int4(unsigned of, unsigned (&pairs)[4]) {
    static_assert(OFFSET == 0 || OFFSET == 8, "offsets of -1024 - OFFSET and -64 - OFFSET are written out for these");
    const __half2 first = as_half2(OFFSET == 8 ? 0xe408e408 : 0xe400e400), second = as_half2(OFFSET == 8 ? 0xd480d480 : 0xd400d400);
    const __half2 sixteenth = as_half2(0x2c002c00);
    const unsigned high = of >> 8;
    pairs[0] = half2_bits(__hadd2(as_half2(and_or(of, 0x000f000f, 0x64006400)), first));
    pairs[1] = half2_bits(__hfma2(as_half2(and_or(of, 0x00f000f0, 0x64006400)), sixteenth, second));
    pairs[2] = half2_bits(__hadd2(as_half2(and_or(high, 0x000f000f, 0x64006400)), first));
    pairs[3] = half2_bits(__hfma2(as_half2(and_or(high, 0x00f000f0, 0x64006400)), sixteenth, second));
}

// Four x, two words, in the order in which unpack_int4 has the nibbles of one kind: (0, 2), (1, 3).
__device__ __forceinline__ FragmentB even_and_odd(unsigned x01, unsigned x23) {
    return {__byte_perm(x01, x23, 0x5410), __byte_perm(x01, x23, 0x7632)};
}

// Four signed bytes as halves, in order. 1024 + (byte + 128) - 1152.
__device__ __forceinline__ void unpack_int8(unsigned of, unsigned& low, unsigned& high) {
    const __half2 offset = as_half2(0x64806480);
    const unsigned biased = of ^ 0x80808080;
    low = half2_bits(__hsub2(as_half2(__byte_perm(biased, 0x64646464, 0x4140)), offset));
    high = half2_bits(__hsub2(as_half2(__byte_perm(biased, 0x64646464, 0x4342)), offset));
}

// Four e4m3 as halves of 1/256 of their value, in order: sign, exponent and mantissa put where a half has them. The code of
// a NaN, which no stored weight is, becomes 480 / 256.
__device__ __forceinline__ void unpack_e4m3(unsigned of, unsigned& low, unsigned& high) {
    const unsigned upper = and_or(of, 0x80808080, of >> 1 & 0x3f3f3f3f), lower = of << 7 & 0x80808080;
    low = __byte_perm(lower, upper, 0x5140);
    high = __byte_perm(lower, upper, 0x7362);
}

// Four e2m1 of the lower half of a word as halves, in order. The upper byte of the half comes from a table of the eight
// magnitudes, its lower byte is 0; a selector of the permutation with its own upper bit set spreads the sign of a byte.
__device__ __forceinline__ void unpack_e2m1(unsigned of, unsigned& low, unsigned& high) {
    const unsigned magnitude = __byte_perm(0x3e3c3800, 0x46444240, of & 0x7777);
    unsigned spread; // 0xff if negative, else 0x80. __byte_perm drops the selectors' upper bits.
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(spread) : "r"(0x80808080), "r"(of));
    const unsigned upper = and_or(spread << 1, 0x80808080, magnitude);
    low = __byte_perm(upper, 0, 0x1404);
    high = __byte_perm(upper, 0, 0x3424);
}

// threadIdx.x, read again: what is computed from threadIdx.x itself holds registers all through the loops in between.
__device__ __forceinline__ unsigned thread_anew() {
    unsigned thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

// Sums what the warps have of the tile's 16 rows and writes y. row_scale may be null.
template <unsigned BATCH>
__device__ __forceinline__ void finish(const float (&c)[4], float (&shared)[GEMV_WARPS][BATCH][GEMV_ROWS], unsigned tile,
                                       const float* row_scale, float alpha, unsigned n, float* y) {
    const unsigned thread = thread_anew();
    const unsigned lane = thread % 32, warp = thread / 32, row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
        if (column + i < BATCH) {
            shared[warp][column + i][row] = c[i];
            shared[warp][column + i][row + 8] = c[i + 2];
        }
    }
    __syncthreads();
    if (thread < GEMV_ROWS * BATCH) {
        const unsigned of = thread % GEMV_ROWS, vector = thread / GEMV_ROWS, at = tile * GEMV_ROWS + of;
        float sum = 0;
#pragma unroll
        for (unsigned w = 0; w < GEMV_WARPS; ++w) {
            sum += shared[w][vector][of];
        }
        if (at < n) {
            y[static_cast<size_t>(vector) * n + at] = (row_scale ? alpha * row_scale[at] : alpha) * sum;
        }
    }
    __syncthreads();
}

// Formats whose rows start at multiples of 16 bytes. A unit is 64 bytes of a row, 16 a lane, that is 4 * Format::LANE weights.
// A Format has
//   LANE, UNITS                     weights in 16 bytes; units that a warp takes at a step: all are loaded, then all
//                                   are used, while the loads of other warps are under way
//   RESIDENT                        blocks of an SM that its registers have to suffice for
//   place(t, i)                     where in a unit the lane's eight x number i are, i < LANE / 8
//   Scale, scale(scales, row, k, unit, t)
//                                   what the lane needs of row's scales for the unit
//   multiply(c, w, w8, s, s8, x)    adds the products of the unit to c; x as in place()
//   row_scale(scales), FACTOR       scale of a whole row or null; factor of alpha
template <class Format, unsigned BATCH>
__device__ __forceinline__ void gemv(const unsigned char* w, const void* scales, float alpha, const __half* x, unsigned n,
                                     unsigned k, unsigned passes, float* y) {
    constexpr unsigned UNIT = 4 * Format::LANE, STEP = UNIT * Format::UNITS;
    __shared__ float shared[GEMV_WARPS][BATCH][GEMV_ROWS];
    struct Raw {
        uint4 w, w8;
        typename Format::Scale s, s8;
    };

    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const __half* vector = x + static_cast<size_t>(min(g, BATCH - 1)) * k;
    const unsigned full = k / STEP;
    const size_t pitch = static_cast<size_t>(k) * 16 / Format::LANE;

#pragma unroll 1
    for (unsigned tile = blockIdx.x; tile * GEMV_ROWS < n; tile += gridDim.x) {
        const unsigned row = min(tile * GEMV_ROWS + g, n - 1), row8 = min(tile * GEMV_ROWS + g + 8, n - 1);
        const unsigned char *from = w + row * pitch, *from8 = w + row8 * pitch;
        float c[4] = {};

        // A unit of which this lane's part is past the row reads the row's first bytes instead, and its x are zero.
        const auto load = [&](Raw& raw, unsigned unit, bool within) {
            const size_t at = within ? unit * 64u + t * 16u : 0u;
            raw.w = streamed16(from + at);
            raw.w8 = streamed16(from8 + at);
            raw.s = Format::scale(scales, row, k, within ? unit : 0, within ? t : 0);
            raw.s8 = Format::scale(scales, row8, k, within ? unit : 0, within ? t : 0);
        };
        const auto load_x = [&](uint4 (&x_of_lane)[Format::LANE / 8], unsigned unit, bool within) {
#pragma unroll
            for (unsigned i = 0; i < Format::LANE / 8; ++i) {
                x_of_lane[i] = cached16(vector + (within ? unit * UNIT + Format::place(t, i) : 0));
            }
        };

        for (unsigned pass = 0; pass < passes; ++pass) {
#pragma unroll 1
            for (unsigned step = warp; step < full; step += GEMV_WARPS) {
                const unsigned first = step * Format::UNITS;
                uint4 x_of_lane[2][Format::LANE / 8];
                Raw raw[Format::UNITS];
                // x before W: should loads come back in order, it must not wait for memory.
                load_x(x_of_lane[0], first, true);
#pragma unroll
                for (unsigned i = 0; i < Format::UNITS; ++i) {
                    load(raw[i], first + i, true);
                }
#pragma unroll
                for (unsigned i = 0; i < Format::UNITS; ++i) {
                    // Not for the lanes: ptxas moves no load past this, neither one of W down to where it would be waited
                    // for, nor those of x up to where they would take more registers than there are.
                    __syncwarp();
                    if (i + 1 < Format::UNITS) {
                        load_x(x_of_lane[(i + 1) % 2], first + i + 1, true);
                    }
                    Format::multiply(c, raw[i].w, raw[i].w8, raw[i].s, raw[i].s8, x_of_lane[i % 2]);
                }
            }
            // What is left, fewer units than warps, goes on with the warp whose turn it is.
            const unsigned thread = thread_anew(), unit = full * Format::UNITS + (thread / 32 - full) % GEMV_WARPS;
            if (unit * UNIT < k) {
                const bool within = unit * UNIT + thread % 4 * Format::LANE < k;
                uint4 x_of_lane[Format::LANE / 8];
                Raw raw;
                load_x(x_of_lane, unit, within);
                load(raw, unit, within);
                if (!within) {
#pragma unroll
                    for (unsigned i = 0; i < Format::LANE / 8; ++i) {
                        x_of_lane[i] = make_uint4(0, 0, 0, 0);
                    }
                }
                Format::multiply(c, raw.w, raw.w8, raw.s, raw.s8, x_of_lane);
            }
        }
        finish<BATCH>(c, shared, tile, Format::row_scale(scales), Format::FACTOR * alpha, n, y);
    }
}

// What formats without scales of their own, or with one a row, have for the units.
struct NoScale {};
struct NoScales {
    using Scale = NoScale;
    static __device__ Scale scale(const void*, unsigned, unsigned, unsigned, unsigned) { return {}; }
};
struct NoRowScale {
    static constexpr float FACTOR = 1;
    static __device__ const float* row_scale(const void*) { return nullptr; }
};
struct RowScale {
    static __device__ const float* row_scale(const void* scales) { return static_cast<const float*>(scales); }
};

// Lanes take weights that follow each other.
template <unsigned LANE> __device__ __forceinline__ unsigned in_order(unsigned t, unsigned i) { return t * LANE + 8 * i; }

// The entries of a format: batches of 1, 2, 4 and 8, which fill what an mma does anyway.
// FORMAT::RESIDENT blocks an SM: knowing what it may use, the compiler keeps all loads of a step under way instead of
// saving registers.
#define GEMV_ENTRY(NAME, BATCH, KERNEL, FORMAT)                                                                              \
    extern "C" __global__ void __launch_bounds__(256, FORMAT::RESIDENT)                                                      \
        NAME##_b##BATCH(const unsigned char* w, const void* scales, float alpha, const __half* x, unsigned n, unsigned k,    \
                        unsigned passes, float* y) {                                                                         \
        KERNEL<FORMAT, BATCH>(w, scales, alpha, x, n, k, passes, y);                                                         \
    }
#define GEMV_ENTRIES(NAME, KERNEL, FORMAT)                                                                                   \
    GEMV_ENTRY(NAME, 1, KERNEL, FORMAT)                                                                                      \
    GEMV_ENTRY(NAME, 2, KERNEL, FORMAT)                                                                                      \
    GEMV_ENTRY(NAME, 4, KERNEL, FORMAT)                                                                                      \
    GEMV_ENTRY(NAME, 8, KERNEL, FORMAT)
