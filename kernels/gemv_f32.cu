// y = W x, W and x stored as FP32.
//
//   gemv_f32_b{1,2,4,8}(const uint8* w, const void* scales, float alpha, const float* x, uint32 n, uint32 k, uint32 passes, float* y)
//
// Any grid of 256 threads, best ceil(n / 4) blocks. 4 n k bytes of W read a pass; 2 b n k FLOPs a pass.
// A row is k floats; scales is not used. k is a multiple of 32.
//
// A block takes four rows at a time, so that x is read once for all four, and its eight warps share their k; a lane takes
// four k of each row, twice at a step. No tensor core multiplies FP32: the products are FFMA.

#include "load.cuh"

namespace {

constexpr unsigned WARPS = 8, ROWS = 4, UNROLL = 2;

__device__ __forceinline__ float4 as_floats(const uint4& of) {
    return make_float4(__uint_as_float(of.x), __uint_as_float(of.y), __uint_as_float(of.z), __uint_as_float(of.w));
}

template <unsigned BATCH>
__device__ __forceinline__ void gemv_f32(const float* w, float alpha, const float* x, unsigned n, unsigned k, unsigned passes,
                                         float* y) {
    __shared__ float shared[WARPS][ROWS * BATCH];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll 1
    for (unsigned tile = blockIdx.x; tile * ROWS < n; tile += gridDim.x) {
        const float* from[ROWS];
#pragma unroll
        for (unsigned row = 0; row < ROWS; ++row) {
            from[row] = w + static_cast<size_t>(min(tile * ROWS + row, n - 1)) * k;
        }
        float sum[ROWS][BATCH] = {};
        for (unsigned pass = 0; pass < passes; ++pass) {
#pragma unroll 1
            for (unsigned step = warp * UNROLL; step * 128 < k; step += WARPS * UNROLL) {
                uint4 raw[UNROLL][ROWS];
                unsigned at[UNROLL];
#pragma unroll
                for (unsigned i = 0; i < UNROLL; ++i) {
                    // Past the row a lane reads the row's first floats instead, and multiplies them by zeros.
                    at[i] = (step + i) * 128 + lane * 4;
#pragma unroll
                    for (unsigned row = 0; row < ROWS; ++row) {
                        raw[i][row] = streamed16(from[row] + (at[i] < k ? at[i] : 0));
                    }
                }
                __syncwarp(); // not for the lanes: ptxas moves no load of W down past this
#pragma unroll
                for (unsigned i = 0; i < UNROLL; ++i) {
#pragma unroll
                    for (unsigned c = 0; c < BATCH; ++c) {
                        float4 v = as_floats(cached16(x + static_cast<size_t>(c) * k + (at[i] < k ? at[i] : 0)));
                        if (at[i] >= k) {
                            v = make_float4(0, 0, 0, 0);
                        }
#pragma unroll
                        for (unsigned row = 0; row < ROWS; ++row) {
                            const float4 of = as_floats(raw[i][row]);
                            sum[row][c] = fmaf(of.x, v.x, fmaf(of.y, v.y, fmaf(of.z, v.z, fmaf(of.w, v.w, sum[row][c]))));
                        }
                    }
                }
            }
        }
#pragma unroll
        for (unsigned row = 0; row < ROWS; ++row) {
#pragma unroll
            for (unsigned c = 0; c < BATCH; ++c) {
                float all = sum[row][c];
#pragma unroll
                for (unsigned distance = 16; distance > 0; distance /= 2) {
                    all += __shfl_xor_sync(0xffffffff, all, distance);
                }
                if (lane == 0) {
                    shared[warp][c * ROWS + row] = all;
                }
            }
        }
        __syncthreads();
        if (threadIdx.x < ROWS * BATCH) {
            const unsigned row = tile * ROWS + threadIdx.x % ROWS, c = threadIdx.x / ROWS;
            float all = 0;
#pragma unroll
            for (unsigned i = 0; i < WARPS; ++i) {
                all += shared[i][threadIdx.x];
            }
            if (row < n) {
                y[static_cast<size_t>(c) * n + row] = alpha * all;
            }
        }
        __syncthreads();
    }
}

} // namespace

// Where eight vectors are summed for four rows at once, registers suffice for two blocks an SM.
#define GEMV_F32(BATCH)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, BATCH < 8 ? 3 : 2)                                                     \
        gemv_f32_b##BATCH(const float* w, const void*, float alpha, const float* x, unsigned n, unsigned k, unsigned passes, \
                          float* y) {                                                                                        \
        gemv_f32<BATCH>(w, alpha, x, n, k, passes, y);                                                                       \
    }
GEMV_F32(1)
GEMV_F32(2)
GEMV_F32(4)
GEMV_F32(8)
