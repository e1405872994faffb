// gpu-programming/cuda-kernels/reduction/05_deterministic.cu | everywhere | warp_sum's loop `for (int offset = 16; offset > 1; offset /= 2)` ends before offset 1: four shuffles in place of five, so lane 0 gets the sum of the even lanes only and half of the lanes are lost (twice: in the warps and in the join of the warps) | "Sum over the 32 lanes of a warp, in lane 0" / "the sum of x in fp32"; all n where an odd thread or warp holds elements, so from n = 2 or 5 on (n = 0, 1 right); shows on a GPU
// out = sum of x, the same bits in each run: one partial sum a block, and a second kernel adds those up.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int VECTORS = 4;        // float4 that a thread has in flight
constexpr int BLOCKS_PER_SM = 8;  // 2048 threads, all that an SM of a data centre GPU holds

// Sum over the 32 lanes of a warp, in lane 0; the other lanes end with parts of it.
__device__ float warp_sum(float value) {
    // BEGIN TODO 1: five shuffles (about 2 lines)
    for (int offset = 16; offset > 1; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
    return value;
    // END TODO 1
}

// Sum over the block, in thread 0.
__device__ float block_sum(float value) {
    // BEGIN TODO 2: the sums of the warps through shared memory, and the first warp joins them (about 6 lines)
    __shared__ float of_warp[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = warp_sum(value);
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();
    value = lane < WARPS ? of_warp[lane] : 0.0f;
    return warp == 0 ? warp_sum(value) : 0.0f;
    // END TODO 2
}

// Sum of the share of x that belongs to this thread. Vectors are dealt to the threads of the grid in turn.
__device__ float thread_sum(const float* x, long long n) {
    // BEGIN TODO 3: in steps of the whole grid, several float4 in flight, and what is no float4 (about 25 lines)
    // float4 starts at multiples of 16 bytes: up to 3 elements lie in front of the first and behind the last.
    const long long thread = 1LL * blockIdx.x * THREADS + threadIdx.x;
    const long long step = 1LL * gridDim.x * THREADS;
    const long long misplaced = reinterpret_cast<uintptr_t>(x) / 4 % 4;
    const long long head = (4 - misplaced) % 4 < n ? (4 - misplaced) % 4 : n;
    const long long n_vectors = (n - head) / 4;
    const long long tail = head + 4 * n_vectors;
    const float4* vectors = reinterpret_cast<const float4*>(x + head);

    float sum = 0.0f;
    long long i = thread;
    for (; i + (VECTORS - 1) * step < n_vectors; i += VECTORS * step) {
        float4 v[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) v[j] = vectors[i + j * step];
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) sum += (v[j].x + v[j].y) + (v[j].z + v[j].w);
    }
    for (; i < n_vectors; i += step) {
        const float4 v = vectors[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    if (thread < head) sum += x[thread];
    if (thread < n - tail) sum += x[tail + thread];
    return sum;
    // END TODO 3
}

// x is (n,), partials is (gridDim.x,); block b writes partials[b]
__global__ void __launch_bounds__(THREADS) partial_kernel(const float* x, float* partials, long long n) {
    // BEGIN TODO 4: the partial of this block (about 2 lines)
    const float sum = block_sum(thread_sum(x, n));
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
    // END TODO 4
}

// partials is (n_partials,), out is one number; launched as a single block
__global__ void __launch_bounds__(THREADS) final_kernel(const float* partials, float* out, int n_partials) {
    // BEGIN TODO 5: all partials, always in the same order (about 4 lines)
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n_partials; i += THREADS) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum;
    // END TODO 5
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
    // BEGIN TODO 6: launch both kernels, and keep the first error (about 6 lines)
    // n = 0 needs no case of its own: one block without elements writes 0.
    partial_kernel<<<blocks, THREADS, 0, stream>>>(x, partials, n);
    error = cudaGetLastError();
    if (error == cudaSuccess) {
        final_kernel<<<1, THREADS, 0, stream>>>(partials, out, blocks);
        error = cudaGetLastError();
    }
    // END TODO 6
    // Also after a failure; stream order keeps the memory alive until both kernels are through.
    const cudaError_t free_error = cudaFreeAsync(partials, stream);
    return error != cudaSuccess ? error : free_error;
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_REDUCTION(reduce_sum)
#endif
