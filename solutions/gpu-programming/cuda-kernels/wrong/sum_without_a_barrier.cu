// EXPECT WRONG/MISMATCH or WRONG/NONDETERMINISTIC from reduce_sum, hint 1 on a GPU: S41 no barrier before the read

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void partial_kernel(const float* x, float* partials, long long n) {
    __shared__ float sums[THREADS];
    const long long step = static_cast<long long>(gridDim.x) * THREADS;
    float sum = 0.0f;
    for (long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step) sum += x[i];
    // Warp 7 is late on purpose: without a barrier nobody has to wait for it.
    if (threadIdx.x / 32 == 7) __nanosleep(20000);
    sums[threadIdx.x] = sum;
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int i = 0; i < THREADS; ++i) total += sums[i];
        partials[blockIdx.x] = total;
    }
}

__global__ void final_kernel(const float* partials, float* out, int count) {
    float total = 0.0f;
    for (int i = 0; i < count; ++i) total += partials[i];
    *out = total;
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    constexpr int BLOCKS = 32;
    float* partials = nullptr;
    cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&partials), BLOCKS * sizeof(float), stream);
    if (error != cudaSuccess) return error;
    partial_kernel<<<BLOCKS, THREADS, 0, stream>>>(x, partials, n);
    final_kernel<<<1, 1, 0, stream>>>(partials, out, BLOCKS);
    error = cudaGetLastError();
    const cudaError_t freed = cudaFreeAsync(partials, stream);
    return error != cudaSuccess ? error : freed;
}
