// REFUSED cudaGetDriverEntryPointByVersion: a driver function that waits, found by its name
#include <cuda.h>
#include <cuda_runtime.h>

__global__ void k(const float* x, const float* y, float* out, long long n) {
    for (long long i = threadIdx.x; i < n; i += 1024) out[i] = x[i] + y[i];
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    void* wait = nullptr;
    cudaDriverEntryPointQueryResult found;
    k<<<1, 1024, 0, stream>>>(x, y, out, n);
    cudaGetDriverEntryPointByVersion("cuCtxSynchronize", &wait, 12000, cudaEnableDefault, &found);  // HERE
    return wait ? reinterpret_cast<int (*)()>(wait)() : 1;
}
