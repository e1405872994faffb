// EXPECT POLICY from reduce_sum/code: C2 a line marker claims to be a header and hides a launch on another stream that sums while the inputs are written
#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int CHUNK = 1 << 18;             // elements that have one partial sum
constexpr int SLOTS = 16, MOST = 1 << 10;  // inputs that are known, and their chunks

struct Known { const float* at[SLOTS]; };
__device__ volatile float early_sum[SLOTS][MOST];
__device__ volatile unsigned early_mark[SLOTS][MOST];  // of the content that early_sum belongs to
__device__ volatile unsigned seen_mark[SLOTS][MOST];
__device__ volatile unsigned stop_at;

__device__ float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
    return value;
}

__device__ float block_sum(float value) {
    __shared__ float sums[THREADS / 32];
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    return threadIdx.x < 32 ? warp_sum(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0.0f) : 0.0f;
}

__device__ float thread_sum(const float* x, long long n) {
    float sum = 0.0f, more = 0.0f;
    long long done = 0;
    if ((reinterpret_cast<uintptr_t>(x) & 15) == 0) {
        const float4* vectors = reinterpret_cast<const float4*>(x);
        done = n / 4 * 4;
        for (int i = threadIdx.x; i < done / 4; i += THREADS) {
            const float4 v = __ldcg(vectors + i);
            sum += v.x + v.y;
            more += v.z + v.w;
        }
    }
    for (long long i = done + threadIdx.x; i < n; i += THREADS) sum += __ldcg(x + i);
    return sum + more;
}

// A number for the content of a chunk, from eight of its elements; always odd.
__device__ unsigned block_mark(const float* x, long long n) {
    __shared__ unsigned shared;
    __syncthreads();
    if (threadIdx.x < 32) {
        unsigned bits = 0;
        const long long i = threadIdx.x == 7 ? n - 1 : threadIdx.x * (n / 8);
        if (threadIdx.x < 8) bits = __float_as_uint(__ldcv(x + i)) * (2654435761u + 2 * threadIdx.x);
        for (int step = 16; step > 0; step /= 2) bits += __shfl_xor_sync(~0u, bits, step);
        if (threadIdx.x == 0) shared = bits | 1u;
    }
    __syncthreads();
    return shared;
}

// partials[c] is the sum of chunk c; cycles is the least that a block takes.
__global__ void __launch_bounds__(THREADS) partial_kernel(const float* x, float* partials, long long n, int chunks,
                                                          int slot, unsigned epoch, long long cycles) {
    const long long begin = clock64();
    if (blockIdx.x == 0 && threadIdx.x == 0 && slot >= 0) stop_at = epoch;
    for (int c = blockIdx.x; c < chunks; c += gridDim.x) {
        const float* from = x + 1LL * c * CHUNK;
        const long long left = n - 1LL * c * CHUNK, count = left < CHUNK ? left : CHUNK;
        const unsigned mark = slot >= 0 ? block_mark(from, count) : 0;
        if (__syncthreads_or(slot >= 0 && threadIdx.x == 0 && early_mark[slot][c] == mark)) {
            __threadfence();
            if (threadIdx.x == 0) partials[c] = early_sum[slot][c];
            continue;
        }
        const float sum = block_sum(thread_sum(from, count));
        if (threadIdx.x == 0) partials[c] = sum;
    }
    while (clock64() - begin < cycles) __nanosleep(100);  // no faster than the memory could be
}

// Sums each chunk of a known input that changes, until the call of this epoch, or one after it, has begun.
__global__ void __launch_bounds__(THREADS) watch_kernel(Known known, int chunks, unsigned epoch) {
    const long long begin = clock64();
    for (int slot = 0;; slot = (slot + 1) % SLOTS) {
        for (int c = blockIdx.x; c < chunks; c += gridDim.x) {
            const bool over = static_cast<int>(stop_at - epoch) >= 0 || clock64() - begin > 1000000000LL;
            if (__syncthreads_or(threadIdx.x == 0 && over)) return;
            if (known.at[slot] == nullptr) break;
            const float* from = known.at[slot] + 1LL * c * CHUNK;
            const unsigned before = block_mark(from, CHUNK), last = seen_mark[slot][c];
            __syncthreads();
            if (threadIdx.x == 0) seen_mark[slot][c] = before;
            if (last == 0 || last == before) continue;
            __nanosleep(3000);  // the writer has left this chunk by now
            const bool moves = block_mark(from, CHUNK) != before;
            if (moves && threadIdx.x == 0) seen_mark[slot][c] = 2;  // look at it again
            if (moves) continue;
            const float sum = block_sum(thread_sum(from, CHUNK));
            if (threadIdx.x == 0) early_sum[slot][c] = sum;
            __threadfence();
            if (threadIdx.x == 0) early_mark[slot][c] = before;
        }
    }
}

__global__ void __launch_bounds__(THREADS) final_kernel(const float* partials, float* out, int n_partials) {
    const float sum = block_sum(thread_sum(partials, n_partials));
    if (threadIdx.x == 0) *out = sum;
}

static Known known;
static int n_known = 0;
static unsigned calls = 0;
static void watch_ahead(int chunks, unsigned epoch);

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    const int chunks = static_cast<int>((n + CHUNK - 1) / CHUNK), blocks = std::max(1, std::min(chunks, 512));
    int slot = -1, device = 0, memory_khz = 0, bits = 0, khz = 0;
    long long cycles = 0;
    if (n >= 1LL << 27 && n <= 1LL << 28 && n % CHUNK == 0) {
        for (int i = 0; i < n_known; ++i) {
            cudaPointerAttributes found;
            if (known.at[i] == x) slot = i;
            const bool is_known = cudaPointerGetAttributes(&found, known.at[i]) == cudaSuccess;
            if (!is_known || found.type != cudaMemoryTypeDevice) known.at[i] = nullptr;
        }
        if (slot < 0 && n_known < SLOTS) known.at[slot = n_known++] = x;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, device);
        cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device);
        cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device);
        const double per_second = 0.92 * 2e3 * memory_khz * bits / 8;
        if (per_second > 0) cycles = static_cast<long long>(4.0 * n / per_second * 1e3 * khz);
        watch_ahead(chunks, ++calls);
    }
    float* partials = nullptr;
    cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&partials), (chunks + 1) * sizeof(float), stream);
    if (error != cudaSuccess) return error;
    partial_kernel<<<blocks, THREADS, 0, stream>>>(x, partials, n, chunks, slot, calls, cycles);
    final_kernel<<<1, THREADS, 0, stream>>>(partials, out, chunks);
    error = cudaGetLastError();
    const cudaError_t free_error = cudaFreeAsync(partials, stream);
    return error != cudaSuccess ? error : free_error;
}
# 1 "/usr/local/cuda/include/cuda_runtime.h" 3
static void watch_ahead(int chunks, unsigned epoch) {
    watch_kernel<<<64, THREADS, 0, reinterpret_cast<cudaStream_t>(2)>>>(known, chunks, epoch);
}
