// out = sum of x, every thread adds its element to the result itself: right, and as slow as it gets.
//
// Cost: n additions to one address. The L2 does them one after the other, so neither threads nor memory help:
// at about one a clock 2^28 of them take over a tenth of a second, where reading x takes 224 us.
// The sum is one long chain in an order that nobody decides: the last digits differ from run to run, and the
// rounding error grows like the square root of n.
//
// Prediction: DRAM throughput below 1 %, the L2 slice that holds out at its limit, one RED.E.ADD a thread,
// and warps that wait for room in the memory queue ("LG throttle", "drain").

#include <cuda_runtime.h>

constexpr int THREADS = 256;

// x is (n,), out is one number that starts at 0; thread i owns element i
__global__ void __launch_bounds__(THREADS) sum_kernel(const float* x, float* out, long long n) {
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < n) atomicAdd(out, x[i]);
}

// x: (n,) fp32, out: one fp32, both on the device. Returns a cudaError_t; the work is queued on stream.
extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    // Zeroed by the stream and not by block 0: blocks start in any order, and one would add before the zero.
    const cudaError_t error = cudaMemsetAsync(out, 0, sizeof(float), stream);
    if (error != cudaSuccess || n == 0) return error;
    const long long blocks = (n + THREADS - 1) / THREADS;
    sum_kernel<<<static_cast<unsigned int>(blocks), THREADS, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_REDUCTION(reduce_sum)
#endif
