// gpu-programming/cuda-kernels/reduction/05_deterministic.cu | two | (1) the tail in thread_sum begins at element 4 * n_vectors without the `head` elements in front, so for an x that is not aligned to 16 bytes the last `head` (1 to 3) elements before the true tail are added twice; (2) final_kernel reads only partials[threadIdx.x], one for each of its 256 threads, with no loop, so partials 256 and later are lost | "what is no float4" / "up to 3 elements lie in front of the first and behind the last" and "all partials"; (1) x not at a multiple of 16 bytes, any n from 1 on; (2) n > 262144 (more than 256 blocks); shows on a GPU
#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int BLOCKS_PER_SM = 8;

__device__ float warp_sum(float value) {
#pragma unroll
    for (int mask = 1; mask < 32; mask <<= 1) {
        value += __shfl_xor_sync(0xffffffffu, value, mask);
    }
    return value;
}

__device__ float block_sum(float value) {
    __shared__ float parts[WARPS];
    value = warp_sum(value);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = value;
    __syncthreads();
    float total = 0.0f;
    if (threadIdx.x == 0) {
        for (int w = 0; w < WARPS; w++) total += parts[w];
    }
    return total;
}

__device__ float thread_sum(const float* x, long long n) {
    const long long me = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    long long head = ((16 - (reinterpret_cast<uintptr_t>(x) & 15)) & 15) / sizeof(float);
    if (head > n) head = n;
    const float4* aligned = reinterpret_cast<const float4*>(x + head);
    const long long n_vectors = (n - head) / 4;

    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
#pragma unroll 4
    for (long long i = me; i < n_vectors; i += stride) {
        const float4 v = __ldg(aligned + i);
        a += v.x;
        b += v.y;
        c += v.z;
        d += v.w;
    }
    if (me < head) a += x[me];
    for (long long i = 4 * n_vectors + me; i < n; i += stride) b += x[i];
    return (a + b) + (c + d);
}

__global__ void __launch_bounds__(THREADS) partial_kernel(const float* x, float* partials, long long n) {
    const float mine = thread_sum(x, n);
    const float sum = block_sum(mine);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS) final_kernel(const float* partials, float* out, int n_partials) {
    const float mine = threadIdx.x < n_partials ? partials[threadIdx.x] : 0.0f;
    const float sum = block_sum(mine);
    if (threadIdx.x == 0) out[0] = sum;
}

cudaError_t choose_blocks(long long n, int* blocks) {
    int device = 0, n_sms = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    const long long useful = (n + 4 * THREADS - 1) / (4 * THREADS);
    const long long most = BLOCKS_PER_SM * n_sms;
    *blocks = static_cast<int>(std::max(1LL, std::min(useful, most)));
    return error;
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    int blocks = 0;
    float* partials = nullptr;
    cudaError_t error = choose_blocks(n, &blocks);
    if (error == cudaSuccess) {
        error = cudaMallocAsync(reinterpret_cast<void**>(&partials), blocks * sizeof(float), stream);
    }
    if (error != cudaSuccess) return error;
    partial_kernel<<<blocks, THREADS, 0, stream>>>(x, partials, n);
    error = cudaGetLastError();
    final_kernel<<<1, THREADS, 0, stream>>>(partials, out, blocks);
    if (error == cudaSuccess) error = cudaGetLastError();
    const cudaError_t free_error = cudaFreeAsync(partials, stream);
    return error != cudaSuccess ? error : free_error;
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_REDUCTION(reduce_sum)
#endif
