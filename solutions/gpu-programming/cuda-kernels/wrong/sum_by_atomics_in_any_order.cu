// EXPECT WRONG/NONDETERMINISTIC from reduce_sum, hint 1 on a GPU: S41 atomics add the partials in any order

#include <cuda_runtime.h>

__global__ void sum_kernel(const float* x, float* out, long long n) {
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    float sum = 0.0f;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) sum += x[i];
    if (sum != 0.0f) atomicAdd(out, sum);
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    const cudaError_t error = cudaMemsetAsync(out, 0, sizeof(float), stream);
    if (error != cudaSuccess) return error;
    sum_kernel<<<1024, 256, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
