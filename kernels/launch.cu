// What a launch costs, and what the clock is.
//
//   empty()                                 0 bytes, 0 FLOPs; any grid of 32 threads. The time of a launch, alone, back to
//                                           back in a stream, or as a node of a graph.
//   spin(uint64* out, uint32 iterations)    24 bytes written, 0 FLOPs; one block of 32 threads. Thread 0 runs a chain of
//                                           `iterations` dependent integer multiply-adds: out[0] = cycles it took,
//                                           out[1] = the chain's value, out[2] = globaltimer in ns at its end. Cycles
//                                           over the time between two events is the clock of the SMs; a spin
//                                           of a known length also keeps a stream busy while others are queued behind it.

extern "C" __global__ void __launch_bounds__(32) empty() {}

extern "C" __global__ void __launch_bounds__(32) spin(unsigned long long* out, unsigned iterations) {
    if (blockIdx.x != 0 || threadIdx.x != 0) {
        return;
    }
    unsigned value = 1;
    const long long began = clock64();
    for (unsigned i = 0; i < iterations; ++i) {
        // The multiplier of a linear congruential generator (Numerical Recipes): no closed form for a compiler to use.
        // volatile, so that it neither leaves the two clock readings nor is unrolled into something shorter.
        asm volatile("mad.lo.u32 %0, %0, 1664525, 1013904223;" : "+r"(value));
    }
    const long long ended = clock64();
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    out[0] = static_cast<unsigned long long>(ended - began);
    out[1] = value;
    out[2] = now;
}
