// EXPECT WRONG/MISMATCH or WRONG/NONDETERMINISTIC from reduce_sum, hint 1 on a GPU: S41 all blocks add to one place

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void sum_kernel(const float* x, float* out, long long n) {
    __shared__ float sums[THREADS];
    const long long step = static_cast<long long>(gridDim.x) * THREADS;
    float sum = 0.0f;
    for (long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step) sum += x[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    // A load, an addition and a store: what another block stores in between is lost.
    if (threadIdx.x == 0) *reinterpret_cast<volatile float*>(out) = *reinterpret_cast<volatile float*>(out) + sums[0];
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    const cudaError_t error = cudaMemsetAsync(out, 0, sizeof(float), stream);
    if (error != cudaSuccess) return error;
    sum_kernel<<<512, THREADS, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
