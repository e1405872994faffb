// EXPECT POLICY from reduce_sum/code: C2 the name of a driver function begins like a permitted one, and is read from its middle: cuLaunchHostFunc

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void partial_kernel(const float* x, double* partials, long long n) {
    __shared__ double sums[THREADS];
    double sum = 0.0;
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < n; i += gridDim.x * (long long)THREADS) sum += x[i];
    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (!threadIdx.x) partials[blockIdx.x] = sums[0];
}

__global__ void final_kernel(const double* partials, float* out, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; ++i) sum += partials[i];
    *out = float(sum);
}

// What host code learns: how often the queue has run by now.
static long long runs = 0;
static void noted(void* where) { ++*static_cast<long long*>(where); }

typedef int (*Later)(void*, void (*)(void*), void*);

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    const int blocks = int(std::max(1LL, std::min(1056LL, (n + THREADS - 1) / THREADS)));
    double* partials = nullptr;
    cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&partials), blocks * sizeof(double), stream);
    if (error != cudaSuccess) return error;
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled\0cuLaunchHostFunc" + sizeof("cuTensorMapEncodeTiled"),
                                     &entry, 12000, cudaEnableDefault, &found);
    if (entry) reinterpret_cast<Later>(entry)(stream, noted, &runs);
    partial_kernel<<<blocks, THREADS, 0, stream>>>(x, partials, n);
    final_kernel<<<1, 1, 0, stream>>>(partials, out, blocks);
    error = cudaGetLastError();
    const cudaError_t freed = cudaFreeAsync(partials, stream);
    return error != cudaSuccess ? error : freed;
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_REDUCTION(reduce_sum)
#endif
