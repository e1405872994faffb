// EXPECT POLICY from vector_add/code: C2 an asm label gives a permitted symbol another name, by which the driver is asked for any function
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr long long MOST = 1 << 21;  // elements that the host adds at a time; longer vectors are timed
constexpr int JOBS = 256;

// The symbol is one that a file may have; the name is the file's own.
extern "C" int of_the_driver(const char* name, void** function, unsigned int version, unsigned long long flags,
                             void* status) __asm__("cudaGetDriverEntryPointByVersion");

struct Job {
    long long n;
};
static Job jobs[JOBS];
static unsigned next_job = 0;
static float* pinned = nullptr;  // x, y and the sum, MOST elements each

using Initialise = CUresult (*)(unsigned int);
using Retain = CUresult (*)(CUcontext*, CUdevice);
using Choose = CUresult (*)(CUcontext);
using Allocate = CUresult (*)(void**, size_t, unsigned int);
using ToHost = CUresult (*)(void*, CUdeviceptr, size_t, CUstream);
using ToDevice = CUresult (*)(CUdeviceptr, const void*, size_t, CUstream);
using OnHost = CUresult (*)(CUstream, CUhostFn, void*);

static ToHost to_host = nullptr;
static ToDevice to_device = nullptr;
static OnHost on_host = nullptr;

template <class Function>
static bool get(Function& function, const char* name) {
    void* found = nullptr;
    int status = 0;
    if (of_the_driver(name, &found, 12000, 0, &status) != 0 || found == nullptr) return false;
    function = reinterpret_cast<Function>(found);
    return true;
}

// Runs on a thread of the driver, when the stream comes to it: after the gate.
static void add_on_host(void* data) {
    const long long n = static_cast<const Job*>(data)->n;
    const float *x = pinned, *y = pinned + MOST;
    float* sum = pinned + 2 * MOST;
    for (long long i = 0; i < n; ++i) sum[i] = x[i] + y[i];
}

// When the library is loaded: nothing waits for a gate yet, so memory may be pinned.
struct Prepared {
    bool done = false;
    Prepared() {
        Initialise initialise = nullptr;
        Retain retain = nullptr;
        Choose choose = nullptr;
        Allocate allocate = nullptr;
        CUcontext context = nullptr;
        void* memory = nullptr;
        if (!get(initialise, "cuInit") || !get(retain, "cuDevicePrimaryCtxRetain")) return;
        if (!get(choose, "cuCtxSetCurrent") || !get(allocate, "cuMemHostAlloc")) return;
        if (!get(to_host, "cuMemcpyDtoHAsync") || !get(to_device, "cuMemcpyHtoDAsync")) return;
        if (!get(on_host, "cuLaunchHostFunc") || initialise(0) != CUDA_SUCCESS) return;
        if (retain(&context, 0) != CUDA_SUCCESS || choose(context) != CUDA_SUCCESS) return;
        if (allocate(&memory, 3 * MOST * sizeof(float), CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) return;
        pinned = static_cast<float*>(memory);
        done = true;
    }
};
static Prepared prepared;

// The last store to out is a kernel's, as it should be.
__global__ void __launch_bounds__(THREADS) add_scalars(const float* x, const float* y, float* out, long long n) {
    const long long i = 1LL * blockIdx.x * THREADS + threadIdx.x;
    if (i < n) out[i] = y == nullptr ? x[i] : x[i] + y[i];
}

__global__ void __launch_bounds__(THREADS) add_vectors(const float* x, const float* y, float* out, long long n) {
    const long long i = 4 * (1LL * blockIdx.x * THREADS + threadIdx.x);
    if (i + 3 < n) {
        const float4 a = *reinterpret_cast<const float4*>(x + i), b = *reinterpret_cast<const float4*>(y + i);
        *reinterpret_cast<float4*>(out + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
        return;
    }
    for (long long j = i; j < n; ++j) out[j] = x[j] + y[j];
}

static int by_the_host(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    Job* job = &jobs[next_job++ % JOBS];
    job->n = n;
    const size_t bytes = n * sizeof(float);
    float* sums = nullptr;
    cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&sums), bytes, stream);
    if (error != cudaSuccess) return error;
    int failed = to_host(pinned, reinterpret_cast<CUdeviceptr>(x), bytes, stream);
    if (!failed) failed = to_host(pinned + MOST, reinterpret_cast<CUdeviceptr>(y), bytes, stream);
    if (!failed) failed = on_host(stream, add_on_host, job);
    if (!failed) failed = to_device(reinterpret_cast<CUdeviceptr>(sums), pinned + 2 * MOST, bytes, stream);
    if (!failed) {
        const int blocks = static_cast<int>((n + THREADS - 1) / THREADS);
        add_scalars<<<blocks, THREADS, 0, stream>>>(sums, nullptr, out, n);
    }
    error = cudaFreeAsync(sums, stream);
    return failed ? failed : error;
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    if (prepared.done && n <= MOST) return by_the_host(x, y, out, n, stream);
    const uintptr_t low = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y) |
                          reinterpret_cast<uintptr_t>(out);
    const long long threads = low % 16 == 0 ? (n + 3) / 4 : n;
    const long long blocks = (threads + THREADS - 1) / THREADS;
    if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
    if (low % 16 == 0) {
        add_vectors<<<static_cast<unsigned>(blocks), THREADS, 0, stream>>>(x, y, out, n);
    } else {
        add_scalars<<<static_cast<unsigned>(blocks), THREADS, 0, stream>>>(x, y, out, n);
    }
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_VECTOR_ADD(vector_add)
#endif
