// out = sum of x, a tree in shared memory: 256 numbers become one in 8 steps, then one atomic a block.
//
// The additions to one address fall to a 256th, and the threads of a block add in parallel. Cost: 9 barriers
// for one 4-byte load a thread, and each step leaves half of the threads without work. A block lasts over 1
// us, most of it waiting, and 8 blocks of 1 KB are on an SM at a time.
//
// Prediction: about 1 TB/s on an H200; stalls "barrier" and "long scoreboard"; no bank conflicts, because the
// threads of a step read neighbours. The order of the atomics still changes the last digits.

#include <cuda_runtime.h>

constexpr int THREADS = 256;  // a power of two: each step halves what is left

// x is (n,), out is one number that starts at 0; block b owns elements b * THREADS to (b + 1) * THREADS - 1
__global__ void __launch_bounds__(THREADS) sum_kernel(const float* x, float* out, long long n) {
    __shared__ float sums[THREADS];
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    // Threads past the end stay and bring 0: all of a block must reach a barrier.
    sums[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        // The lower half takes in the upper half: whole warps fall idle, and no two lanes share a bank.
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, sums[0]);
}

// x: (n,) fp32, out: one fp32, both on the device. Returns a cudaError_t; the work is queued on stream.
extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
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
