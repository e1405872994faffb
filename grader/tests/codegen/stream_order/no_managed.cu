// REFUSED __managed__: a variable that host and GPU share
#include <cuda_runtime.h>
__managed__ float total;  // HERE
__global__ void k(const float* x, const float* y, float* out, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) out[i] = x[i] + y[i];
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    total = 1;
    k<<<1, 256, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}
