// Peak rate of block-scaled tcgen05.mma.kind::mxf4nvf4 on e2m1 with ue4m3 factors of 16,
// accumulating in f32.
// FLOPs: blocks * (2 * iterations + 1) * 2 * 128 * 256 * 128.
// Launch, bytes and parameters: tcgen05.cuh, with KT = 128, two elements a byte, the even one in
// the low nibble; scale_a: [128][KT / 16], scale_b: [256][KT / 16], a byte each. The factors are
// put into tensor memory once, before the loop; 3 KiB more are read.
#include "tcgen05.cuh"

struct Nvf4 {
    // An instruction takes 64 elements of a row and so four factors: one 32-bit column of tensor
    // memory holds those of 32 rows, a lane a row, and the next columns hold the rows that
    // follow. Each warp's 32 lanes hold the same factors.
    static constexpr u32 COLUMNS_A = M / 32, COLUMNS_B = N / 32;
    static constexpr u32 SCALE_A = ACCUMULATOR_COLUMNS;
    // Not packed behind A's: the unit wants B's factors aligned.
    static constexpr u32 SCALE_B = SCALE_A + 16;
    static constexpr u32 COLUMNS = 512;
    // In these kinds e2m1 has the code 1, and no bits say how to accumulate.
    static constexpr u32 DESCRIPTOR = types(1) | SHAPE;

    // Words of four factors: [rows][STEPS].
    const u32 *scale_a, *scale_b;
    u32 memory;

    static __device__ __forceinline__ u32 factors(const u32 *scale, u32 column, u32 columns) {
        const u32 step = column / columns, row = column % columns * 32 + threadIdx.x % 32;
        return scale[row * STEPS + step];
    }

    __device__ __forceinline__ void prepare(u32 allocated) {
        memory = allocated;
        const u32 lanes = threadIdx.x / 32 * 32 << 16;
        u32 words[STEPS * COLUMNS_B];
#pragma unroll
        for (u32 i = 0; i < STEPS * COLUMNS_A; ++i) words[i] = factors(scale_a, i, COLUMNS_A);
        store(words, memory + SCALE_A + lanes);
#pragma unroll
        for (u32 i = 0; i < STEPS * COLUMNS_B; ++i) words[i] = factors(scale_b, i, COLUMNS_B);
        store(words, memory + SCALE_B + lanes);
        store(words + 8, memory + SCALE_B + 8 + lanes);
        asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
        before_barrier();
        __syncthreads();
        after_barrier();
    }

    // Writes eight columns of the 32 lanes that belong to this warp.
    static __device__ __forceinline__ void store(const u32 *words, u32 address) {
        asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], "
                     "{%1, %2, %3, %4, %5, %6, %7, %8};" ::"r"(address),
                     "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(words[4]),
                     "r"(words[5]), "r"(words[6]), "r"(words[7])
                     : "memory");
    }

    __device__ __forceinline__ void multiply(u32 accumulator, u64 a, u64 b, u32 step,
                                             bool add) const {
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; "
                     "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 "
                     "[%0], %1, %2, %3, [%5], [%6], p; }" ::"r"(accumulator),
                     "l"(a), "l"(b), "r"(DESCRIPTOR), "r"(static_cast<u32>(add)),
                     "r"(memory + SCALE_A + step * COLUMNS_A),
                     "r"(memory + SCALE_B + step * COLUMNS_B)
                     : "memory");
    }
};

extern "C" __global__ __launch_bounds__(THREADS) void tcgen05_nvf4(
    const void *a, const void *a2, const void *b, const u32 *scale_a, const u32 *scale_b,
    u32 iterations, float *out) {
    tcgen05_peak(Nvf4{scale_a, scale_b, 0}, a, a2, b, iterations, out);
}
