// EXPECT SLOW from vector_add/speed, hint 2 on a GPU: S57 each thread walks along a stretch of its own

#include <cuda_runtime.h>

constexpr int STRETCH = 64;

__global__ void add_kernel(const float* x, const float* y, float* out, long long n) {
    const long long first = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * STRETCH;
    // The lanes of a warp are 256 bytes apart: each of their loads touches 32 lines.
    for (long long i = first; i < first + STRETCH && i < n; ++i) out[i] = x[i] + y[i];
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    const long long threads = (n + STRETCH - 1) / STRETCH;
    add_kernel<<<static_cast<unsigned>((threads + 255) / 256), 256, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}
