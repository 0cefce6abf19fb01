// The peak of FP32 arithmetic outside of the tensor cores.
//
//   fma_f32(const float* x, float a, float b, uint32 iterations, float* out)
//
// Any grid of 256 threads. Each thread t of the grid holds eight accumulators, x[8 t + j] at first, and computes
// acc = fma(acc, a, b) `iterations` times for each; out[8 t + j] = acc. 16 FLOPs per thread and iteration; 32 bytes read and
// 32 written per thread in all. Eight independent chains a thread hide the latency of the unit at two warps a scheduler.

namespace {

constexpr unsigned CHAINS = 8;

} // namespace

extern "C" __global__ void __launch_bounds__(256)
    fma_f32(const float4* __restrict__ x, float a, float b, unsigned iterations, float4* __restrict__ out) {
    const unsigned long long first = 2 * (static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x);
    const float4 low = x[first], high = x[first + 1];
    float acc[CHAINS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll 16
    for (unsigned i = 0; i < iterations; ++i) {
#pragma unroll
        for (unsigned j = 0; j < CHAINS; ++j) {
            acc[j] = fmaf(acc[j], a, b);
        }
    }
    out[first] = make_float4(acc[0], acc[1], acc[2], acc[3]);
    out[first + 1] = make_float4(acc[4], acc[5], acc[6], acc[7]);
}
