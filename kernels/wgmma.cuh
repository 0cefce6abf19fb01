// The scheme shared by every wgmma peak (compute capability 9.0): two warpgroups a block, each
// with its own 64 x 256 accumulator in registers, multiply the same tiles of shared memory over
// and over, asynchronously and with one group of instructions always in flight. A block fills
// the registers of an SM, so as many blocks as SMs fill the device.
//
// A kernel is launched with 256 threads a block and any grid; KT is 64 elements of 16 bits or
// 128 of 8, so that a row of a tile is 128 bytes:
//   a, a2       [64][KT] row-major
//   b           [256][KT] row-major
//   iterations  trips of the loop; each adds A * B^T and then A2 * B^T
//   out         element (row, column) of warpgroup g is g * 64 * 256 + row * 256 + column
// A last A * B^T follows the loop, so with A2 = -A the result is A * B^T for any count.
//
// FLOPs (integer operations for the integer kernel):
//   warpgroups * (2 * iterations + 1) * 2 * 64 * 256 * KT
// Bytes: 48 KiB read by each block, out of the L2 cache after the first, and 64 KiB written by
// each warpgroup; none that grow with `iterations`.
#pragma once

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 M = 64;
constexpr u32 N = 256;
constexpr u32 WARPGROUP = 128;
constexpr u32 REGISTERS = M * N / WARPGROUP;

// A row of a tile is 128 bytes: eight chunks of 16, the unit of the swizzle.
constexpr u32 CHUNKS = 8;
// An instruction takes 32 bytes of each row, so four instructions take a tile.
constexpr u32 STEPS = 4;

// The descriptor of a tile in shared memory (PTX ISA, "Matrix Descriptor Format"). All counts
// of bytes are stored without their four lowest bits.
//   bits  0-13  address
//   bits 16-29  leading dimension offset: not used by a K-major tile one swizzle atom wide
//   bits 32-45  stride dimension offset: from eight rows to the next eight, 1024 bytes
//   bits 49-51  base offset: 0, as every tile starts on a multiple of 1024 bytes
//   bits 62-63  swizzle: 1 is 128 bytes
constexpr u64 ADDRESS = 0x3ffff;
constexpr u64 LEADING_OFFSET = 1ull << 16;
constexpr u64 STRIDE_OFFSET = (1024ull >> 4) << 32;
constexpr u64 SWIZZLE_128B = 1ull << 62;
// From the 32 bytes of one instruction to those of the next, within the swizzled row.
constexpr u64 NEXT_STEP = 32 >> 4;

__device__ __forceinline__ u64 descriptor(const uint4 *tile) {
    const u64 address = __cvta_generic_to_shared(tile) & ADDRESS;
    return address >> 4 | LEADING_OFFSET | STRIDE_OFFSET | SWIZZLE_128B;
}

// Copies rows of 128 bytes into the 128-byte swizzle: chunk c of row r goes to place c ^ (r % 8).
__device__ __forceinline__ void fill(uint4 *tile, const uint4 *rows, u32 count) {
    for (u32 i = threadIdx.x; i < count * CHUNKS; i += blockDim.x) {
        const u32 row = i / CHUNKS, chunk = i % CHUNKS;
        tile[row * CHUNKS + (chunk ^ (row % 8))] = rows[i];
    }
}

// Orders what came before in the registers of the accumulator before the next instructions.
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <u32 LEFT> __device__ __forceinline__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Adds one product of whole tiles to the accumulator, without waiting for it.
template <class Shape>
__device__ __forceinline__ void product(typename Shape::Accumulator (&sum)[REGISTERS], u64 a,
                                        u64 b) {
#pragma unroll
    for (u32 step = 0; step < STEPS; ++step)
        Shape::multiply(sum, a + step * NEXT_STEP, b + step * NEXT_STEP);
}

template <class Shape>
__device__ __forceinline__ void wgmma_peak(const void *a, const void *a2, const void *b,
                                           u32 iterations, typename Shape::Accumulator *out) {
    __shared__ __align__(1024) uint4 plus[M * CHUNKS];
    __shared__ __align__(1024) uint4 minus[M * CHUNKS];
    __shared__ __align__(1024) uint4 right[N * CHUNKS];
    fill(plus, static_cast<const uint4 *>(a), M);
    fill(minus, static_cast<const uint4 *>(a2), M);
    fill(right, static_cast<const uint4 *>(b), N);
    // wgmma reads shared memory through the asynchronous proxy.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();

    const u64 plus_tile = descriptor(plus), minus_tile = descriptor(minus);
    const u64 right_tile = descriptor(right);
    typename Shape::Accumulator sum[REGISTERS];
#pragma unroll
    for (u32 r = 0; r < REGISTERS; ++r) sum[r] = 0;

#pragma unroll 1
    for (u32 i = 0; i < iterations; ++i) {
        fence();
        product<Shape>(sum, plus_tile, right_tile);
        product<Shape>(sum, minus_tile, right_tile);
        commit();
        wait<1>();
    }
    fence();
    product<Shape>(sum, plus_tile, right_tile);
    commit();
    wait<0>();

    // Warp w of the group holds rows 16w to 16w + 15, a quad of lanes a row. Registers 4n and
    // 4n + 1 are two of the columns from 8n on, 4n + 2 and 4n + 3 the same eight rows below.
    const u64 group = (blockIdx.x * blockDim.x + threadIdx.x) / WARPGROUP;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    const u32 row = 16 * warp + lane / 4, column = 2 * (lane % 4);
    typename Shape::Pair *pairs =
        reinterpret_cast<typename Shape::Pair *>(out + group * (M * N) + row * N + column);
#pragma unroll
    for (u32 r = 0; r < REGISTERS; r += 4) {
        pairs[r] = {sum[r], sum[r + 1]};
        pairs[r + 8 * N / 2] = {sum[r + 2], sum[r + 3]};
    }
}

#define WGMMA_REGISTERS                                                                          \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                     \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "           \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "           \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_OPERANDS_16(C, S, I)                                                               \
    C(S[I]), C(S[I + 1]), C(S[I + 2]), C(S[I + 3]), C(S[I + 4]), C(S[I + 5]), C(S[I + 6]),       \
        C(S[I + 7]), C(S[I + 8]), C(S[I + 9]), C(S[I + 10]), C(S[I + 11]), C(S[I + 12]),         \
        C(S[I + 13]), C(S[I + 14]), C(S[I + 15])

// An instruction sum += A * B^T on the tiles at two descriptors, and what follows its scale-d of 1:
// for floating point the signs of A and B, for 16 bits also their transposition.
#define WGMMA_SHAPE(NAME, INSTRUCTION, MODIFIERS, ACCUMULATOR, PAIR, CONSTRAINT)                 \
    struct NAME {                                                                                \
        using Accumulator = ACCUMULATOR;                                                         \
        using Pair = PAIR;                                                                       \
        static __device__ __forceinline__ void multiply(Accumulator (&sum)[REGISTERS], u64 a,    \
                                                        u64 b) {                                 \
            asm volatile(INSTRUCTION " {" WGMMA_REGISTERS "}, %128, %129, 1" MODIFIERS ";"       \
                         : WGMMA_OPERANDS_16(CONSTRAINT, sum, 0),                                \
                           WGMMA_OPERANDS_16(CONSTRAINT, sum, 16),                               \
                           WGMMA_OPERANDS_16(CONSTRAINT, sum, 32),                               \
                           WGMMA_OPERANDS_16(CONSTRAINT, sum, 48),                               \
                           WGMMA_OPERANDS_16(CONSTRAINT, sum, 64),                               \
                           WGMMA_OPERANDS_16(CONSTRAINT, sum, 80),                               \
                           WGMMA_OPERANDS_16(CONSTRAINT, sum, 96),                               \
                           WGMMA_OPERANDS_16(CONSTRAINT, sum, 112)                               \
                         : "l"(a), "l"(b));                                                      \
        }                                                                                        \
    }
