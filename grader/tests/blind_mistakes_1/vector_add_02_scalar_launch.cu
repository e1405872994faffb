// gpu-programming/cuda-kernels/vector_add/02_vectorised.cu | error | the launch of add_scalars has only two launch arguments, `<<<blocks, THREADS>>>`, so it runs on the default stream and not on the function's stream (POLICY; on a GPU it may read the inputs before they are written) | "Each launch has four launch arguments, and the fourth is the function's `cudaStream_t` parameter"; by the file's text always, in results only for pointers that are not aligned to 16 bytes; compiles
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int PER_BLOCK = 4 * THREADS;

__global__ void __launch_bounds__(THREADS) add_vectors(const float* x, const float* y, float* out, long long n) {
    const long long first = 4 * (1LL * blockIdx.x * blockDim.x + threadIdx.x);
    if (first + 4 <= n) {
        float4 v = *reinterpret_cast<const float4*>(x + first);
        const float4 w = *reinterpret_cast<const float4*>(y + first);
        v.x += w.x;
        v.y += w.y;
        v.z += w.z;
        v.w += w.w;
        *reinterpret_cast<float4*>(out + first) = v;
        return;
    }
    for (long long i = first; i < n; i++) out[i] = x[i] + y[i];
}

__global__ void __launch_bounds__(THREADS) add_scalars(const float* x, const float* y, float* out, long long n) {
    const long long i = 1LL * blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = x[i] + y[i];
}

static bool on_16_bytes(const void* p) { return (reinterpret_cast<std::uintptr_t>(p) & 15) == 0; }

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    if (on_16_bytes(x) && on_16_bytes(y) && on_16_bytes(out)) {
        const int blocks = static_cast<int>((n + PER_BLOCK - 1) / PER_BLOCK);
        add_vectors<<<blocks, THREADS, 0, stream>>>(x, y, out, n);
    } else {
        const int blocks = static_cast<int>((n + THREADS - 1) / THREADS);
        add_scalars<<<blocks, THREADS>>>(x, y, out, n);
    }
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_VECTOR_ADD(vector_add)
#endif
