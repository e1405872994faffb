// out = sum of x, 06 with enough in flight: eight float4 a thread and a grid that follows the occupancy.
//
// 4.8 TB/s with a latency near 0.7 us needs 25 KB on the way to each of 132 SMs at any moment, and more under
// load or while blocks come and go; 128 bytes a thread and 1024 threads make 128 KB. The grid is what is
// resident, WAVES times: more blocks, so that one that ends early makes room for another, were not faster.
// __ldcs: x is read once and need not push out of the L2 what others keep there. Eight vectors are added as a
// tree into four running sums a thread: chains of some 60 additions for 2^30 elements, and a small error.
// Cost: 32 registers hold what is in flight, half the occupancy of 06, more partials for the last block.
//
// Prediction: eight LDG.E.EF.128 in a row, DRAM above 90 %, 4.3 to 4.4 TB/s at 2^28 and 2^30 on an H200.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
// For the register limit: without it the compiler aims at full occupancy, which leaves 32 registers a thread,
// and it then issues four loads, adds them up, and only after that the other four.
constexpr int BLOCKS_PER_SM = 4;
constexpr int VECTORS = 8;        // float4 that a thread has in flight; the tree below is written for 8
constexpr int TILE = THREADS * VECTORS;  // float4 that a block takes at a time: 32 KB
constexpr int WAVES = 1;          // blocks of the grid for each one that is resident
constexpr int MAX_BLOCKS = 8192;  // room for 1024 SMs of 8 blocks
constexpr int SLOTS = 64;         // for streams, and as many again for captured graphs

// Scratch of calls that never overlap: those on one stream, or the replays of one call in a graph.
struct Slot {
    float partials[MAX_BLOCKS];
    unsigned int tickets_drawn;  // 0 whenever no kernel runs
};

// 4 MB on each GPU. Streams whose ids differ by a multiple of SLOTS share a slot and must not overlap; neither
// must captured calls with SLOTS or more between them.
__device__ Slot slots[2 * SLOTS];

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

__device__ float4 operator+(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ float4 tree_sum(const float4 (&v)[VECTORS]) {
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

// Sum of the share of x that belongs to this thread. Tiles are dealt to the blocks of the grid in turn.
__device__ float thread_sum(const float* x, long long n) {
    // float4 starts at multiples of 16 bytes: up to 3 elements lie in front of the first and behind the last.
    const long long head = min(n, static_cast<long long>((4 - reinterpret_cast<uintptr_t>(x) / 4 % 4) % 4));
    const long long n_vectors = (n - head) / 4;
    const long long n_tiles = n_vectors / TILE;
    const float4* vectors = reinterpret_cast<const float4*>(x + head);

    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 sums = zero;
    float4 v[VECTORS];
    for (long long tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        // Distances known to the compiler: one address serves all 8 loads, which then leave side by side.
        const float4* mine = vectors + tile * TILE + threadIdx.x;
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) v[k] = __ldcs(mine + k * THREADS);
        sums = sums + tree_sum(v);
    }
    float edges = 0.0f;
    // What is left goes to the block whose turn it would be, all loads first again.
    if (blockIdx.x == n_tiles % gridDim.x) {
        const long long first = n_tiles * TILE + threadIdx.x;
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            v[k] = first + k * THREADS < n_vectors ? __ldcs(vectors + first + k * THREADS) : zero;
        }
        sums = sums + tree_sum(v);
        const long long tail = head + 4 * n_vectors;
        if (threadIdx.x < head) edges += x[threadIdx.x];
        if (threadIdx.x < n - tail) edges += x[tail + threadIdx.x];
    }
    return ((sums.x + sums.y) + (sums.z + sums.w)) + edges;
}

// x is (n,), out is one number
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) sum_kernel(const float* x, float* out, long long n,
                                                                     int slot) {
    __shared__ bool is_last;
    Slot& mine = slots[slot];
    float sum = block_sum(thread_sum(x, n));
    if (threadIdx.x == 0) {
        mine.partials[blockIdx.x] = sum;
        // Without the fence the ticket could be seen before the partial.
        __threadfence();
        is_last = atomicInc(&mine.tickets_drawn, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;

    // And no read of a partial may move up in front of the ticket.
    __threadfence();
    sum = 0.0f;
    for (int i = threadIdx.x; i < gridDim.x; i += THREADS) sum += __ldcg(&mine.partials[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum;
}

// The blocks to launch: WAVES times what is resident, fewer where n gives them nothing to do.
cudaError_t choose_blocks(long long n, int* blocks) {
    int device = 0, n_sms = 0, blocks_per_sm = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) {
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, sum_kernel, THREADS, 0);
    }
    const long long useful = (n + 4 * TILE - 1) / (4 * TILE);
    const long long most = std::min(WAVES * blocks_per_sm * n_sms, MAX_BLOCKS);
    *blocks = static_cast<int>(std::max(1LL, std::min(useful, most)));
    return error;
}

// The slot of a call on stream. A stream that is being captured cannot be asked for its id, and a graph may be
// replayed on any stream, beside the one it came from: each captured call has a slot of its own.
cudaError_t choose_slot(cudaStream_t stream, int* slot) {
    static std::atomic<unsigned int> captured{0};
    cudaStreamCaptureStatus status;
    cudaError_t error = cudaStreamIsCapturing(stream, &status);
    if (error != cudaSuccess) return error;
    if (status != cudaStreamCaptureStatusNone) {
        *slot = SLOTS + static_cast<int>(captured++ % SLOTS);
        return cudaSuccess;
    }
    unsigned long long id = 0;
    error = cudaStreamGetId(stream, &id);
    *slot = static_cast<int>(id % SLOTS);
    return error;
}

// x: (n,) fp32, out: one fp32, both on the device. Returns a cudaError_t; the work is queued on stream.
extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    int blocks = 0, slot = 0;
    cudaError_t error = choose_blocks(n, &blocks);
    if (error == cudaSuccess) error = choose_slot(stream, &slot);
    if (error != cudaSuccess) return error;
    // n = 0 needs no case of its own: one block without elements writes 0.
    sum_kernel<<<blocks, THREADS, 0, stream>>>(x, out, n, slot);
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_REDUCTION(reduce_sum)
#endif
