// The scheme shared by every tcgen05 peak (compute capabilities 10.x and 11.0): one thread of a
// block multiplies the same tiles of shared memory over and over into a 128 x 256 accumulator in
// tensor memory. The instructions are asynchronous and run in the order of their issue.
//
// A kernel is launched with 128 threads a block and any grid; as many blocks as SMs
// fill the device. KT is 32 elements of 16 bits, 64 of 8 or 128 of 4, so that a row of a tile is
// 64 bytes and the three tiles fit into the shared memory a block has without asking for more:
//   a, a2       [128][KT] row-major
//   b           [256][KT] row-major
//   iterations  trips of the loop; each adds A2 * B^T and A * B^T
//   out         element (row, column) of block g is g * 128 * 256 + row * 256 + column
// A first A * B^T starts the sum, so with A2 = -A the result is A * B^T for any count.
//
// FLOPs (integer operations for the integer kernel):
//   blocks * (2 * iterations + 1) * 2 * 128 * 256 * KT
// Bytes: 32 KiB read by each block, out of the L2 cache after the first, and 128 KiB written;
// none that grow with `iterations`.
#pragma once

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 M = 128;
constexpr u32 N = 256;
constexpr u32 THREADS = 128;

// A row of a tile is 64 bytes: four chunks of 16, the unit of the swizzle.
constexpr u32 CHUNKS = 4;
// An instruction takes 32 bytes of each row, so two instructions take a tile.
constexpr u32 STEPS = 2;

// The descriptor of a tile in shared memory (PTX ISA, "Shared memory descriptor"). All counts of
// bytes are stored without their four lowest bits.
//   bits  0-13  address
//   bits 16-29  leading dimension offset: not used by a K-major tile one swizzle atom wide
//   bits 32-45  stride dimension offset: from eight rows to the next eight, 512 bytes
//   bits 46-48  always 1
//   bits 49-51  base offset: 0, as every tile starts on a multiple of 512 bytes
//   bit  52     leading dimension mode: 0, relative
//   bits 61-63  swizzle: 4 is 64 bytes
constexpr u64 ADDRESS = 0x3ffff;
constexpr u64 LEADING_OFFSET = 1ull << 16;
constexpr u64 STRIDE_OFFSET = (512ull >> 4) << 32;
constexpr u64 ALWAYS = 1ull << 46;
constexpr u64 SWIZZLE_64B = 4ull << 61;
// From the 32 bytes of one instruction to those of the next, within the swizzled row.
constexpr u64 NEXT_STEP = 32 >> 4;

// The instruction descriptor (PTX ISA, "Instruction descriptor"): no sparsity, no negation, no
// transposition, so those bits are 0.
//   bits  4-5   type of the accumulator; not there for the block-scaled kinds
//   bits  7-9   type of A, by kind
//   bits 10-12  type of B, by kind
//   bits 17-22  N / 8
//   bit  23     type of the scale factors, block-scaled kinds only: 0 is ue4m3
//   bits 24-28  M / 16
constexpr u32 ACCUMULATE_F32 = 1 << 4;
constexpr u32 ACCUMULATE_S32 = 2 << 4;
constexpr u32 SHAPE = (N / 8) << 17 | (M / 16) << 24;
__device__ constexpr u32 types(u32 type) { return type << 7 | type << 10; }

// The accumulator takes one column of tensor memory a column, and a lane a row.
constexpr u32 ACCUMULATOR_COLUMNS = N;
// Columns that a tcgen05.ld takes at once.
constexpr u32 LOAD = 32;

__device__ __forceinline__ u32 shared(const void *pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ u64 descriptor(const uint4 *tile) {
    return (shared(tile) & ADDRESS) >> 4 | LEADING_OFFSET | STRIDE_OFFSET | ALWAYS | SWIZZLE_64B;
}

// Copies rows of 64 bytes into the 64-byte swizzle, which is a pattern of 512 bytes: of the
// chunks of 16 bytes, chunk c of row r goes to place c ^ (r / 2 % 4).
__device__ __forceinline__ void fill(uint4 *tile, const uint4 *rows, u32 count) {
    for (u32 i = threadIdx.x; i < count * CHUNKS; i += THREADS) {
        const u32 row = i / CHUNKS, chunk = i % CHUNKS;
        tile[row * CHUNKS + (chunk ^ (row / 2 % 4))] = rows[i];
    }
}

// One thread of a warp, the same each time, in a way that ptxas knows to be one.
__device__ __forceinline__ bool elected() {
    u32 is;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is));
    return is != 0;
}

// Makes what this thread did to shared or tensor memory visible behind the next barrier.
__device__ __forceinline__ void before_barrier() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

__device__ __forceinline__ void after_barrier() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// Waits until the barrier's first phase is complete.
__device__ __forceinline__ void wait(u32 barrier) {
    u32 complete;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(complete)
                     : "r"(barrier)
                     : "memory");
    } while (!complete);
}

// Reads 32 columns of the 32 lanes that belong to this warp: one row a thread.
__device__ __forceinline__ void load(u32 (&to)[LOAD], u32 address) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "[%32];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]), "=r"(to[4]), "=r"(to[5]),
                   "=r"(to[6]), "=r"(to[7]), "=r"(to[8]), "=r"(to[9]), "=r"(to[10]), "=r"(to[11]),
                   "=r"(to[12]), "=r"(to[13]), "=r"(to[14]), "=r"(to[15]), "=r"(to[16]),
                   "=r"(to[17]), "=r"(to[18]), "=r"(to[19]), "=r"(to[20]), "=r"(to[21]),
                   "=r"(to[22]), "=r"(to[23]), "=r"(to[24]), "=r"(to[25]), "=r"(to[26]),
                   "=r"(to[27]), "=r"(to[28]), "=r"(to[29]), "=r"(to[30]), "=r"(to[31])
                 : "r"(address));
    // The registers pass through here, so that nothing reads them before they are there.
    asm volatile("tcgen05.wait::ld.sync.aligned;"
                 : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3]), "+r"(to[4]), "+r"(to[5]),
                   "+r"(to[6]), "+r"(to[7]), "+r"(to[8]), "+r"(to[9]), "+r"(to[10]), "+r"(to[11]),
                   "+r"(to[12]), "+r"(to[13]), "+r"(to[14]), "+r"(to[15]), "+r"(to[16]),
                   "+r"(to[17]), "+r"(to[18]), "+r"(to[19]), "+r"(to[20]), "+r"(to[21]),
                   "+r"(to[22]), "+r"(to[23]), "+r"(to[24]), "+r"(to[25]), "+r"(to[26]),
                   "+r"(to[27]), "+r"(to[28]), "+r"(to[29]), "+r"(to[30]), "+r"(to[31])
                 :
                 : "memory");
}

// Adds one product of whole tiles to the accumulator, or starts it with that product.
template <class Kind>
__device__ __forceinline__ void product(const Kind &kind, u32 accumulator, u64 a, u64 b, bool add) {
#pragma unroll
    for (u32 step = 0; step < STEPS; ++step)
        kind.multiply(accumulator, a + step * NEXT_STEP, b + step * NEXT_STEP, step,
                      add || step > 0);
}

// `Kind` gives the columns of tensor memory that it needs (a power of two), `prepare(memory)`,
// which the whole block calls once, and `multiply(accumulator, a, b, step, add)`: one instruction
// on the tiles at two descriptors.
template <class Kind>
__device__ __forceinline__ void tcgen05_peak(Kind kind, const void *a, const void *a2,
                                             const void *b, u32 iterations, void *out) {
    __shared__ __align__(1024) uint4 plus[M * CHUNKS];
    __shared__ __align__(1024) uint4 minus[M * CHUNKS];
    __shared__ __align__(1024) uint4 right[N * CHUNKS];
    __shared__ u64 finished;
    __shared__ u32 allocated;
    const u32 warp = threadIdx.x / 32;

    fill(plus, static_cast<const uint4 *>(a), M);
    fill(minus, static_cast<const uint4 *>(a2), M);
    fill(right, static_cast<const uint4 *>(b), N);
    // The instructions read shared memory through the asynchronous proxy.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (warp == 0) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         shared(&allocated)),
                     "n"(Kind::COLUMNS)
                     : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
        if (elected()) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&finished))
                         : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
    }
    before_barrier();
    __syncthreads();
    after_barrier();
    const u32 memory = *static_cast<volatile u32 *>(&allocated);
    kind.prepare(memory);

    if (warp == 0 && elected()) {
        const u64 plus_tile = descriptor(plus), minus_tile = descriptor(minus);
        const u64 right_tile = descriptor(right);
        product(kind, memory, plus_tile, right_tile, false);
#pragma unroll 1
        for (u32 i = 0; i < iterations; ++i) {
            product(kind, memory, minus_tile, right_tile, true);
            product(kind, memory, plus_tile, right_tile, true);
        }
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                     ::"r"(shared(&finished))
                     : "memory");
    }
    __syncwarp();
    wait(shared(&finished));
    after_barrier();

    // A warp may only read lanes 32w to 32w + 31 of tensor memory (the address's upper half).
    u32 *row = static_cast<u32 *>(out) +
               (static_cast<u64>(blockIdx.x) * M + threadIdx.x) * N;
#pragma unroll 1
    for (u32 column = 0; column < N; column += LOAD) {
        u32 values[LOAD];
        load(values, memory + (warp * 32 << 16) + column);
#pragma unroll
        for (u32 i = 0; i < LOAD; i += 4)
            *reinterpret_cast<uint4 *>(row + column + i) =
                make_uint4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    }
    before_barrier();
    __syncthreads();
    after_barrier();
    if (warp == 0)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(memory),
                     "n"(Kind::COLUMNS)
                     : "memory");
}

// A kind without scale factors, of which PTX writes the name after ".kind::".
#define TCGEN05_KIND(NAME, KIND, DESCRIPTOR)                                                     \
    struct NAME {                                                                                \
        static constexpr u32 COLUMNS = ACCUMULATOR_COLUMNS;                                      \
        __device__ __forceinline__ void prepare(u32) const {}                                    \
        __device__ __forceinline__ void multiply(u32 accumulator, u64 a, u64 b, u32,             \
                                                 bool add) const {                               \
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; "                                \
                         "tcgen05.mma.cta_group::1.kind::" KIND " [%0], %1, %2, %3, p; }" ::     \
                             "r"(accumulator),                                                   \
                         "l"(a), "l"(b), "r"(DESCRIPTOR), "r"(static_cast<u32>(add))             \
                         : "memory");                                                            \
        }                                                                                        \
    }
