// GEMV over formats whose rows are blocks with their scales inside, as in GGUF: blocks of 18, 34 or 210 bytes, so rows and
// blocks start at any even address.
//
// A warp copies its part of 16 rows, eight blocks or one super-block each, into shared memory with aligned loads of 16 bytes
// that begin at or before the part, and then takes words from there wherever they lie. Only the very end of W, where such
// a load would go past it, is copied by twos.
#pragma once

#include "gemv.cuh"

// The copy of one row's part: words, and where in the first 16 bytes the part begins. Offsets are from the beginning of the
// part, even and known when compiled, so that all that depends on the row is done once a part.
template <bool ALIGNED> struct StagedRow {
    const unsigned* words;
    unsigned even, odd;             // where offsets that are 0 and 2 modulo 4 begin, in words
    unsigned even_shift, odd_shift; // and in bits of that word
    const unsigned short* halves;

    // lane_offset, a multiple of 4, is added to the offsets of at() and pair_at().
    __device__ __forceinline__ StagedRow(const uint4* row, unsigned begins, unsigned lane_offset)
        : words(reinterpret_cast<const unsigned*>(row)), even((begins + lane_offset) / 4), odd((begins + lane_offset + 2) / 4),
          even_shift(begins % 4 * 8), odd_shift((begins + 2) % 4 * 8),
          halves(reinterpret_cast<const unsigned short*>(row) + begins / 2) {}

    __device__ __forceinline__ unsigned at(unsigned offset) const {
        const unsigned first = (offset % 4 == 0 ? even : odd) + offset / 4;
        return __funnelshift_r(words[first], words[first + 1], offset % 4 == 0 ? even_shift : odd_shift);
    }
    // Two words, of a part that is aligned.
    __device__ __forceinline__ uint2 pair_at(unsigned offset) const {
        static_assert(ALIGNED, "a pair is loaded at once");
        return *reinterpret_cast<const uint2*>(words + even + offset / 4);
    }
    // What all lanes take: two bytes; the float of a half; a word of a part that is aligned.
    __device__ __forceinline__ unsigned two_at(unsigned offset) const { return halves[offset / 2]; }
    __device__ __forceinline__ float half_at(unsigned offset) const { return half_bits_to_float(two_at(offset)); }
    __device__ __forceinline__ unsigned word_at(unsigned offset) const {
        static_assert(ALIGNED, "a word is loaded at once");
        return words[offset / 4];
    }
};

// A Format has
//   BLOCK, BYTES                     weights and bytes of a block
//   ALIGNED, LANE                    blocks begin at multiples of 16 bytes; bytes from lane to lane of what at() reads
//   BLOCKS                           blocks of a row that a warp takes at a step
//   RESIDENT                         blocks of an SM that its registers have to suffice for
//   multiply(c, row, row8, at, x, t)
//                                    adds the products of the block that begins `at` bytes into the part; x is the block's
template <class Format, unsigned BATCH>
__device__ __forceinline__ void gemv_blocks(const unsigned char* w, const void*, float alpha, const __half* x, unsigned n,
                                            unsigned k, unsigned passes, float* y) {
    constexpr unsigned PART = Format::BYTES * Format::BLOCKS;
    constexpr unsigned LATEST = Format::ALIGNED ? 0 : 14;   // byte of the first 16 at which a part may begin
    constexpr unsigned PIECES = (LATEST + PART + 15) / 16;  // of 16 bytes
    // Of a row's copy, so that lanes of different rows read different banks: words, or pairs of words where rows are aligned.
    constexpr unsigned PITCH = Format::ALIGNED ? (PIECES + 1) / 4 * 4 + 2 : PIECES | 1;
    constexpr unsigned GROUP = Format::BLOCKS < 4 ? Format::BLOCKS : 4; // blocks that are worked on side by side
    using Row = StagedRow<Format::ALIGNED>;
    constexpr unsigned LOADS = (PIECES + 3) / 4;
    __shared__ float shared[GEMV_WARPS][BATCH][GEMV_ROWS];
    __shared__ uint4 copies[GEMV_WARPS][GEMV_ROWS][PITCH];

    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    uint4(&copy)[GEMV_ROWS][PITCH] = copies[warp];
    const __half* vector = x + static_cast<size_t>(min(g, BATCH - 1)) * k;
    const unsigned blocks = k / Format::BLOCK, steps = (blocks + Format::BLOCKS - 1) / Format::BLOCKS;
    const size_t pitch = static_cast<size_t>(blocks) * Format::BYTES, bytes = n * pitch;

#pragma unroll 1
    for (unsigned tile = blockIdx.x; tile * GEMV_ROWS < n; tile += gridDim.x) {
        const size_t row = min(tile * GEMV_ROWS + g, n - 1) * pitch, row8 = min(tile * GEMV_ROWS + g + 8, n - 1) * pitch;
        const bool last_tile = (tile + 1) * GEMV_ROWS >= n;
        float c[4] = {};

        for (unsigned pass = 0; pass < passes; ++pass) {
#pragma unroll 1
            for (unsigned step = warp; step < steps; step += GEMV_WARPS) {
                const size_t from = row + static_cast<size_t>(step) * PART, from8 = row8 + static_cast<size_t>(step) * PART;
                const unsigned begins = Format::ALIGNED ? 0 : from % 16, begins8 = Format::ALIGNED ? 0 : from8 % 16;
                const unsigned count = min(Format::BLOCKS, blocks - step * Format::BLOCKS);

                // What aligned loads would read past the end of W.
                const bool overhangs = !Format::ALIGNED && last_tile && step + 1 == steps && bytes % 16 != 0;
                if (!overhangs) {
                    // Zeros after the part, of which a word may be read and shifted away.
                    uint4 piece[LOADS] = {}, piece8[LOADS] = {};
#pragma unroll
                    for (unsigned i = 0; i < LOADS; ++i) {
                        const unsigned at = 16 * (t + 4 * i);
                        if (at < begins + count * Format::BYTES) {
                            piece[i] = streamed16(w + from - begins + at);
                        }
                        if (at < begins8 + count * Format::BYTES) {
                            piece8[i] = streamed16(w + from8 - begins8 + at);
                        }
                    }
#pragma unroll
                    for (unsigned i = 0; i < LOADS; ++i) {
                        if (t + 4 * i < PIECES) {
                            copy[g][t + 4 * i] = piece[i];
                            copy[g + 8][t + 4 * i] = piece8[i];
                        }
                    }
                } else {
                    for (unsigned i = t; i < PIECES; i += 4) {
                        copy[g][i] = copy[g + 8][i] = make_uint4(0, 0, 0, 0);
                    }
                    __syncwarp();
                    auto* to = reinterpret_cast<unsigned short*>(copy[g]) + begins / 2;
                    auto* to8 = reinterpret_cast<unsigned short*>(copy[g + 8]) + begins8 / 2;
#pragma unroll 1
                    for (unsigned i = t; i < count * Format::BYTES / 2; i += 4) {
                        to[i] = streamed2(w + from + 2 * i);
                        to8[i] = streamed2(w + from8 + 2 * i);
                    }
                }
                __syncwarp();

                const __half* part = vector + step * Format::BLOCKS * Format::BLOCK;
                unsigned i = 0;
#pragma unroll 1
                for (; i + GROUP <= count; i += GROUP) {
                    const Row staged(copy[g], begins + i * Format::BYTES, Format::LANE * t);
                    const Row staged8(copy[g + 8], begins8 + i * Format::BYTES, Format::LANE * t);
#pragma unroll
                    for (unsigned j = 0; j < GROUP; ++j) {
                        Format::multiply(c, staged, staged8, j * Format::BYTES, part + (i + j) * Format::BLOCK, t);
                    }
                }
#pragma unroll 1
                for (; i < count; ++i) {
                    const Row staged(copy[g], begins + i * Format::BYTES, Format::LANE * t);
                    const Row staged8(copy[g + 8], begins8 + i * Format::BYTES, Format::LANE * t);
                    Format::multiply(c, staged, staged8, 0, part + i * Format::BLOCK, t);
                }
                __syncwarp();
            }
        }
        finish<BATCH>(c, shared, tile, nullptr, alpha, n, y);
    }
}
