// ALLOWED: template arguments with an operator
#include <cuda_runtime.h>

__global__ void k(const float* x, const float* y, float* out, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) out[i] = x[i] + y[i];
}
template <int B> void go(const float* x, const float* y, float* out, long long n, cudaStream_t s) { k<<<B, 256, 0, s>>>(x,y,out,n); }
extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    switch (n % 3) { case 0: go<1>(x, y, out, n, stream); break; case 1: go<2>(x,y,out,n,stream); break; default: go<(3 > 2 ? 4 : 5)>(x,y,out,n,stream); }
    return cudaGetLastError();
}
