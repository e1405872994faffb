// gpu-programming/cuda-kernels/reduction/05_deterministic.cu | error | warp_sum: __shfl_down(value, offset) is the intrinsic of old CUDA versions and is not defined for sm_70 and later, so the file does not compile. It must be __shfl_down_sync(0xffffffff, value, offset).

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int VECTORS = 4;        // float4 that a thread has in flight
constexpr int BLOCKS_PER_SM = 8;  // 2048 threads, all that an SM of a data centre GPU holds

// Sum over the 32 lanes of a warp, in lane 0; the other lanes end with parts of it.
__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down(value, offset);
    }
    return value;
}

// Sum over the block, in thread 0.
__device__ float block_sum(float value) {
    __shared__ float sums[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = warp_sum(value);
    if (lane == 0) sums[warp] = value;
    __syncthreads();
    value = threadIdx.x < WARPS ? sums[threadIdx.x] : 0.0f;
    return warp == 0 ? warp_sum(value) : 0.0f;
}

// Sum of the share of x that belongs to this thread. Vectors are dealt to the threads of the grid in turn.
__device__ float thread_sum(const float* x, long long n) {
    const long long thread = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    const long long threads = static_cast<long long>(gridDim.x) * THREADS;
    // elements in front of the first float4
    const long long offset = (16 - reinterpret_cast<uintptr_t>(x) % 16) % 16 / 4;
    const long long head = offset < n ? offset : n;
    const long long vectors = (n - head) / 4;
    const float4* x4 = reinterpret_cast<const float4*>(x + head);
    float sums[VECTORS] = {};
    long long i = thread;
    for (; i + (VECTORS - 1) * threads < vectors; i += VECTORS * threads) {
        float4 v[VECTORS];
        #pragma unroll
        for (int j = 0; j < VECTORS; ++j) v[j] = x4[i + j * threads];
        #pragma unroll
        for (int j = 0; j < VECTORS; ++j) sums[j] += (v[j].x + v[j].y) + (v[j].z + v[j].w);
    }
    for (; i < vectors; i += threads) {
        const float4 v = x4[i];
        sums[0] += (v.x + v.y) + (v.z + v.w);
    }
    float sum = 0.0f;
    for (int j = 0; j < VECTORS; ++j) sum += sums[j];
    if (thread < head) sum += x[thread];
    const long long tail = head + 4 * vectors;
    if (tail + thread < n) sum += x[tail + thread];
    return sum;
}

// x is (n,), partials is (gridDim.x,); block b writes partials[b]
__global__ void __launch_bounds__(THREADS) partial_kernel(const float* x, float* partials, long long n) {
    const float sum = block_sum(thread_sum(x, n));
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// partials is (n_partials,), out is one number; launched as a single block
__global__ void __launch_bounds__(THREADS) final_kernel(const float* partials, float* out, int n_partials) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n_partials; i += THREADS) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum;
}

// The blocks to launch: as many as are resident at a time, fewer where n gives them nothing to do.
cudaError_t choose_blocks(long long n, int* blocks) {
    int device = 0, n_sms = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    const long long useful = (n + 4 * THREADS - 1) / (4 * THREADS);
    const long long most = BLOCKS_PER_SM * n_sms;
    *blocks = static_cast<int>(std::max(1LL, std::min(useful, most)));
    return error;
}

// x: (n,) fp32, out: one fp32, both on the device. Returns a cudaError_t; the work is queued on stream.
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
    if (error == cudaSuccess) {
        final_kernel<<<1, THREADS, 0, stream>>>(partials, out, blocks);
        error = cudaGetLastError();
    }
    // Also after a failure; stream order keeps the memory alive until both kernels are through.
    const cudaError_t free_error = cudaFreeAsync(partials, stream);
    return error != cudaSuccess ? error : free_error;
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_REDUCTION(reduce_sum)
#endif
