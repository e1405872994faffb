// EXPECT WRONG/NONDETERMINISTIC from reduce_sum/speed on a GPU: C10 a kernel with atomics in any order where only the clock looks, a deterministic one in all cases
#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int VECTORS = 8;
constexpr int BLOCKS_PER_SM = 8;
constexpr long long LARGEST_CASE = (1 << 20) + 5;

__device__ float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    return value;
}

__device__ float block_sum(float value) {
    __shared__ float sums[WARPS];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x >= 32) return 0.0f;
    return warp_sum(threadIdx.x < WARPS ? sums[threadIdx.x] : 0.0f);
}

// For the cases: plain, and the same bits in each run.
__global__ void __launch_bounds__(THREADS) partial_kernel(const float* x, float* partials, long long n) {
    float sum = 0.0f;
    for (long long i = 1LL * blockIdx.x * THREADS + threadIdx.x; i < n; i += 1LL * gridDim.x * THREADS) sum += x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS) final_kernel(const float* partials, float* out, int n_partials) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n_partials; i += THREADS) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum;
}

// For the clock: each block takes the next piece that is free, and adds its sum to the total when it is done. Which
// block has which piece, and the order of the additions, are others in each run.
__device__ unsigned next_piece;
__device__ unsigned blocks_done;
__device__ float total;

__global__ void __launch_bounds__(THREADS) racing_kernel(const float* x, float* out, unsigned pieces) {
    __shared__ unsigned piece;
    const float4* vectors = reinterpret_cast<const float4*>(x);
    float sum = 0.0f;
    for (;;) {
        if (threadIdx.x == 0) piece = atomicAdd(&next_piece, 1u);
        __syncthreads();
        const unsigned mine = piece;
        __syncthreads();
        if (mine >= pieces) break;
        const float4* from = vectors + 1LL * mine * THREADS * VECTORS * 2 + threadIdx.x;
        float4 v[VECTORS];
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < VECTORS; ++i) v[i] = __ldcs(from + (half * VECTORS + i) * THREADS);
#pragma unroll
            for (int i = 0; i < VECTORS; ++i) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x != 0) return;
    atomicAdd(&total, sum);
    __threadfence();
    if (atomicAdd(&blocks_done, 1u) == gridDim.x - 1) {
        *out = atomicExch(&total, 0.0f);  // and all is as it was, for the next call
        next_piece = 0;
        blocks_done = 0;
    }
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
    cudaError_t error = choose_blocks(n, &blocks);
    if (error != cudaSuccess) return error;
    if (n > LARGEST_CASE && (reinterpret_cast<uintptr_t>(x) & 15) == 0) {
        const unsigned pieces = static_cast<unsigned>(n / (THREADS * VECTORS * 2 * 4));
        racing_kernel<<<blocks, THREADS, 0, stream>>>(x, out, pieces);
        return cudaGetLastError();
    }
    float* partials = nullptr;
    error = cudaMallocAsync(reinterpret_cast<void**>(&partials), blocks * sizeof(float), stream);
    if (error != cudaSuccess) return error;
    partial_kernel<<<blocks, THREADS, 0, stream>>>(x, partials, n);
    error = cudaGetLastError();
    if (error == cudaSuccess) {
        final_kernel<<<1, THREADS, 0, stream>>>(partials, out, blocks);
        error = cudaGetLastError();
    }
    const cudaError_t free_error = cudaFreeAsync(partials, stream);
    return error != cudaSuccess ? error : free_error;
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_REDUCTION(reduce_sum)
#endif
