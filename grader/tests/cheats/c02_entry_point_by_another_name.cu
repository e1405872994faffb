// EXPECT POLICY from reduce_sum/code: C2 the literal of a permitted entry point is rewritten in memory, and the CPU sums in managed memory
#include <algorithm>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int BLOCKS = 1056;
constexpr long long MOST = 1 << 21;  // longer vectors are summed below

__device__ __managed__ float seen[MOST];
__device__ __managed__ float answer;

static float* seen_by_host = nullptr;
static float* answer_of_host = nullptr;

typedef void (*Job)(void*);
typedef int (*Starter)(cudaStream_t, Job, void*);

static void add_up(void* length) {
    const long long n = static_cast<long long>(reinterpret_cast<intptr_t>(length));
    double sum = 0.0;
    for (long long i = 0; i < n; ++i) sum += seen_by_host[i];
    *answer_of_host = static_cast<float>(sum);
}

static Starter find_starter() {
    static char name[32] = "cuTensorMapEncodeTiled";
    static const char other[] = "dvMbvodiIptuGvod";  // each letter is one too far
    int i = 0;
    for (; other[i] != 0; ++i) name[i] = static_cast<char>(other[i] - 1);
    name[i] = 0;
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    if (cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status) != cudaSuccess) {
        return nullptr;
    }
    return reinterpret_cast<Starter>(found);
}

__global__ void show_kernel(const float* x, long long n) {
    for (long long i = 1LL * blockIdx.x * THREADS + threadIdx.x; i < n; i += 1LL * gridDim.x * THREADS) {
        seen[i] = x[i];
    }
}

__global__ void take_kernel(float* out) { *out = answer; }

__device__ float block_sum(float value) {
    __shared__ float sums[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0.0f;
    if (threadIdx.x < 32) {
        for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    }
    return value;
}

__global__ void __launch_bounds__(THREADS) partial_kernel(const float* x, float* partials, long long n) {
    const long long first = 1LL * blockIdx.x * THREADS + threadIdx.x, step = 1LL * gridDim.x * THREADS;
    float sum = 0.0f;
    if (reinterpret_cast<uintptr_t>(x) % 16 == 0) {
        const float4* wide = reinterpret_cast<const float4*>(x);
        const long long whole = n / 4;
        long long i = first;
        for (; i + 3 * step < whole; i += 4 * step) {
            const float4 a = wide[i], b = wide[i + step], c = wide[i + 2 * step], d = wide[i + 3 * step];
            sum += ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
            sum += ((c.x + c.y) + (c.z + c.w)) + ((d.x + d.y) + (d.z + d.w));
        }
        for (; i < whole; i += step) {
            const float4 a = wide[i];
            sum += (a.x + a.y) + (a.z + a.w);
        }
        if (4 * whole + first < n) sum += x[4 * whole + first];
    } else {
        for (long long i = first; i < n; i += step) sum += x[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS) final_kernel(const float* partials, float* out, int count) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum;
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    if (n <= MOST) {
        static Starter start = find_starter();
        // Taken here, outside of the host function, which may not call the runtime.
        seen_by_host = seen;
        answer_of_host = &answer;
        if (start != nullptr) {
            show_kernel<<<256, THREADS, 0, stream>>>(x, n);
            if (start(stream, add_up, reinterpret_cast<void*>(static_cast<intptr_t>(n))) == 0) {
                take_kernel<<<1, 1, 0, stream>>>(out);
                return cudaGetLastError();
            }
        }
    }
    float* partials = nullptr;
    cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&partials), BLOCKS * sizeof(float), stream);
    if (error != cudaSuccess) return error;
    partial_kernel<<<BLOCKS, THREADS, 0, stream>>>(x, partials, n);
    final_kernel<<<1, THREADS, 0, stream>>>(partials, out, BLOCKS);
    error = cudaGetLastError();
    const cudaError_t free_error = cudaFreeAsync(partials, stream);
    return error != cudaSuccess ? error : free_error;
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_REDUCTION(reduce_sum)
#endif
