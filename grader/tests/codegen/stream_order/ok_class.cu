// ALLOWED: a method launches
#include <cuda_runtime.h>

__global__ void k(const float* x, const float* y, float* out, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) out[i] = x[i] + y[i];
}
struct Op { const float *x, *y; float* out; long long n;
 int run(cudaStream_t s) const { k<<<1, 256, 0, s>>>(x, y, out, n); return cudaGetLastError(); } };
extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    Op op{x, y, out, n};
    return op.run(stream);
    return cudaGetLastError();
}
