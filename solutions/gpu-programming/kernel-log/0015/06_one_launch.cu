// out = sum of x in one launch: the block that finishes last adds up the partials.
//
// A ticket counts the blocks that have written theirs; whoever draws the last one knows that all are there.
// atomicInc wraps the count back to 0 by itself, so that no memset has to run before the next call. The order
// of the additions stays fixed, whichever block comes last: the same bits in each run, as in 05.
// Cost: a fence and an atomic a block, and scratch that outlives the call. It is one static buffer for each
// GPU, so two calls whose kernels may overlap, on two streams or in two graphs, would mix their partials:
// one stream at a time. The ABI has no workspace argument that could lift this; 07 eases it.
//
// Prediction: one launch and about 2 us less than 05; no difference in DRAM throughput.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int VECTORS = 4;        // float4 that a thread has in flight
constexpr int BLOCKS_PER_SM = 8;  // 2048 threads, all that an SM of a data centre GPU holds
constexpr int MAX_BLOCKS = 2048;  // room for 256 SMs

__device__ float partials[MAX_BLOCKS];
__device__ unsigned int tickets_drawn;  // 0 whenever no kernel runs

// Sum over the 32 lanes of a warp, in lane 0; the other lanes end with parts of it.
__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

// Sum over the block, in thread 0. A barrier must lie between two calls: they share warp_sums.
__device__ float block_sum(float value) {
    __shared__ float warp_sums[WARPS];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) value = warp_sum(threadIdx.x < WARPS ? warp_sums[threadIdx.x] : 0.0f);
    return value;
}

// Sum of the share of x that belongs to this thread. Vectors are dealt to the threads of the grid in turn.
__device__ float thread_sum(const float* x, long long n) {
    // float4 starts at multiples of 16 bytes: up to 3 elements lie in front of the first and behind the last.
    const long long head = min(n, static_cast<long long>((4 - reinterpret_cast<uintptr_t>(x) / 4 % 4) % 4));
    const long long n_vectors = (n - head) / 4;
    const float4* vectors = reinterpret_cast<const float4*>(x + head);
    const long long me = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    const long long n_threads = static_cast<long long>(gridDim.x) * THREADS;

    float sum = 0.0f;
    long long i = me;
    for (; i + (VECTORS - 1) * n_threads < n_vectors; i += VECTORS * n_threads) {
        float4 v[VECTORS];
        // Loads first: an addition between them would wait for the load before it.
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) v[k] = vectors[i + k * n_threads];
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    for (; i < n_vectors; i += n_threads) {
        const float4 v = vectors[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    const long long tail = head + 4 * n_vectors;
    if (me < head) sum += x[me];
    if (me < n - tail) sum += x[tail + me];
    return sum;
}

// x is (n,), out is one number
__global__ void __launch_bounds__(THREADS) sum_kernel(const float* x, float* out, long long n) {
    __shared__ bool is_last;
    float sum = block_sum(thread_sum(x, n));
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
        // Without the fence the ticket could be seen before the partial.
        __threadfence();
        is_last = atomicInc(&tickets_drawn, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;

    // And no read of a partial may move up in front of the ticket.
    __threadfence();
    sum = 0.0f;
    // __ldcg reads from the L2, where all blocks meet; the L1 of this SM knows nothing of the others' writes.
    for (int i = threadIdx.x; i < gridDim.x; i += THREADS) sum += __ldcg(&partials[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum;
}

// The blocks to launch: as many as are resident at a time, fewer where n gives them nothing to do.
cudaError_t choose_blocks(long long n, int* blocks) {
    int device = 0, n_sms = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    const long long useful = (n + 4 * THREADS - 1) / (4 * THREADS);
    const long long most = std::min(BLOCKS_PER_SM * n_sms, MAX_BLOCKS);
    *blocks = static_cast<int>(std::max(1LL, std::min(useful, most)));
    return error;
}

// x: (n,) fp32, out: one fp32, both on the device. Returns a cudaError_t; the work is queued on stream.
extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    int blocks = 0;
    const cudaError_t error = choose_blocks(n, &blocks);
    if (error != cudaSuccess) return error;
    // n = 0 needs no case of its own: one block without elements writes 0.
    sum_kernel<<<blocks, THREADS, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_REDUCTION(reduce_sum)
#endif
