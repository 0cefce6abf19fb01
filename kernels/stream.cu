// What memory delivers. Any grid of 256 threads; elements are 16 bytes and go round the threads of the grid, each of which
// has four loads or stores under way. n16 is any number of elements, none included; bytes and FLOPs of one launch:
//
//   stream_read(const uint4* a, uint64 n16, uint32* out)          16 n16 read, no FLOPs. out[thread] = sum of all words of
//                                                                 its elements (wrapping), which proves that they were read
//   stream_write(uint4* a, uint64 n16, uint32 seed)               16 n16 written. Word j of the array = seed + j (wrapping)
//   stream_copy(const uint4* a, uint4* b, uint64 n16)             16 n16 read, 16 n16 written
//   stream_triad(float4* a, const float4* b, const float4* c, float s, uint64 n16)
//                                                                 32 n16 read, 16 n16 written, 8 n16 FLOPs. a = b + s c
//   l2_read(const uint4* a, uint64 n16, uint32 passes, uint32* out)
//                                                                 16 n16 passes read. As stream_read, `passes` times, past
//                                                                 the first-level cache: of the second-level cache's
//                                                                 bandwidth where a fits into that

#include "load.cuh"

namespace {

constexpr unsigned IN_FLIGHT = 4;

__device__ unsigned long long thread_of_grid() { return static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ unsigned long long threads_of_grid() { return static_cast<unsigned long long>(gridDim.x) * blockDim.x; }

__device__ unsigned sum(uint4 of) { return of.x + of.y + of.z + of.w; }

// Calls full(i, stride) for each group of IN_FLIGHT elements i, i + stride, …, and one(i) for each of the rest.
template <class Full, class One> __device__ void for_elements(unsigned long long n16, Full full, One one) {
    const unsigned long long stride = threads_of_grid();
    unsigned long long i = thread_of_grid();
    for (; i + (IN_FLIGHT - 1) * stride < n16; i += IN_FLIGHT * stride) {
        full(i, stride);
    }
    for (; i < n16; i += stride) {
        one(i);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(256) stream_read(const uint4* a, unsigned long long n16, unsigned* out) {
    unsigned total = 0;
    for_elements(
        n16,
        [&](unsigned long long i, unsigned long long stride) {
            uint4 part[IN_FLIGHT];
#pragma unroll
            for (unsigned j = 0; j < IN_FLIGHT; ++j) {
                part[j] = a[i + j * stride];
            }
#pragma unroll
            for (unsigned j = 0; j < IN_FLIGHT; ++j) {
                total += sum(part[j]);
            }
        },
        [&](unsigned long long i) { total += sum(a[i]); });
    out[thread_of_grid()] = total;
}

extern "C" __global__ void __launch_bounds__(256) stream_write(uint4* a, unsigned long long n16, unsigned seed) {
    const auto write = [&](unsigned long long i) {
        const unsigned first = seed + static_cast<unsigned>(4 * i);
        a[i] = make_uint4(first, first + 1, first + 2, first + 3);
    };
    for_elements(
        n16,
        [&](unsigned long long i, unsigned long long stride) {
#pragma unroll
            for (unsigned j = 0; j < IN_FLIGHT; ++j) {
                write(i + j * stride);
            }
        },
        write);
}

extern "C" __global__ void __launch_bounds__(256)
    stream_copy(const uint4* __restrict__ a, uint4* __restrict__ b, unsigned long long n16) {
    for_elements(
        n16,
        [&](unsigned long long i, unsigned long long stride) {
            uint4 part[IN_FLIGHT];
#pragma unroll
            for (unsigned j = 0; j < IN_FLIGHT; ++j) {
                part[j] = a[i + j * stride];
            }
#pragma unroll
            for (unsigned j = 0; j < IN_FLIGHT; ++j) {
                b[i + j * stride] = part[j];
            }
        },
        [&](unsigned long long i) { b[i] = a[i]; });
}

extern "C" __global__ void __launch_bounds__(256) stream_triad(float4* __restrict__ a, const float4* __restrict__ b,
                                                               const float4* __restrict__ c, float s, unsigned long long n16) {
    const auto triad = [&](float4 left, float4 right) {
        return make_float4(fmaf(s, right.x, left.x), fmaf(s, right.y, left.y), fmaf(s, right.z, left.z), fmaf(s, right.w, left.w));
    };
    for_elements(
        n16,
        [&](unsigned long long i, unsigned long long stride) {
            float4 left[IN_FLIGHT], right[IN_FLIGHT];
#pragma unroll
            for (unsigned j = 0; j < IN_FLIGHT; ++j) {
                left[j] = b[i + j * stride];
                right[j] = c[i + j * stride];
            }
#pragma unroll
            for (unsigned j = 0; j < IN_FLIGHT; ++j) {
                a[i + j * stride] = triad(left[j], right[j]);
            }
        },
        [&](unsigned long long i) { a[i] = triad(b[i], c[i]); });
}

extern "C" __global__ void __launch_bounds__(256) l2_read(const uint4* a, unsigned long long n16, unsigned passes, unsigned* out) {
    unsigned total = 0;
    for (unsigned pass = 0; pass < passes; ++pass) {
        for_elements(
            n16,
            [&](unsigned long long i, unsigned long long stride) {
                uint4 part[IN_FLIGHT];
#pragma unroll
                for (unsigned j = 0; j < IN_FLIGHT; ++j) {
                    part[j] = streamed16(a + i + j * stride);
                }
#pragma unroll
                for (unsigned j = 0; j < IN_FLIGHT; ++j) {
                    total += sum(part[j]);
                }
            },
            [&](unsigned long long i) { total += sum(streamed16(a + i)); });
    }
    out[thread_of_grid()] = total;
}
