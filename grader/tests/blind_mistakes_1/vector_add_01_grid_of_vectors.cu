// gpu-programming/cuda-kernels/vector_add/02_vectorised.cu | corner | the grid of add_vectors is made for n / 4 threads (`threads = n / 4`, 1 for n < 4, rounded up to blocks), but the last n % 4 elements belong to thread number n / 4, which does not exist when n / 4 is a positive multiple of THREADS: they stay unwritten | "Sizes may be anything from 1 on", "the last 1 to 3 elements"; only aligned pointers and n = 1024 j + 1, + 2 or + 3 with j >= 1 (1025, 8193, 16385, 65537); shows on a GPU
// out = x + y, four elements a thread: one float4, a single 16-byte access.

#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

// x, y, out are (n,) and start at multiples of 16 bytes; thread t owns elements 4 t to 4 t + 3
__global__ void __launch_bounds__(THREADS) add_vectors(const float* x, const float* y, float* out,
                                                       long long n) {
    // BEGIN TODO 1: one float4 for each thread, and the last 1 to 3 elements (about 11 lines)
    const long long t = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    const long long vectors = n / 4;
    if (t < vectors) {
        const float4 a = reinterpret_cast<const float4*>(x)[t];
        const float4 b = reinterpret_cast<const float4*>(y)[t];
        reinterpret_cast<float4*>(out)[t] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    } else if (t == vectors) {
        for (long long i = 4 * vectors; i < n; ++i) out[i] = x[i] + y[i];
    }
    // END TODO 1
}

// the same for pointers at any multiple of 4 bytes; thread i owns element i
__global__ void __launch_bounds__(THREADS) add_scalars(const float* x, const float* y, float* out,
                                                       long long n) {
    // BEGIN TODO 2: one element for each thread (about 2 lines)
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
    // END TODO 2
}

// x, y, out: (n,) fp32 on the device, out may be x or y. Returns a cudaError_t; the work is queued on stream.
extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;  // a grid of no blocks is a launch error
    // BEGIN TODO 3: launch the kernel that these three addresses permit (about 11 lines)
    // The low bits of the three addresses together: one pointer out of place is enough.
    const uintptr_t bits = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(out);
    const bool aligned = bits % 16 == 0;
    const long long threads = aligned ? (n < 4 ? 1 : n / 4) : n;
    const long long blocks = (threads + THREADS - 1) / THREADS;
    if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
    const unsigned grid = static_cast<unsigned>(blocks);
    if (aligned) {
        add_vectors<<<grid, THREADS, 0, stream>>>(x, y, out, n);
    } else {
        add_scalars<<<grid, THREADS, 0, stream>>>(x, y, out, n);
    }
    // END TODO 3
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_VECTOR_ADD(vector_add)
#endif
