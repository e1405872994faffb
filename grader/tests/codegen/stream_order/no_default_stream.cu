// REFUSED k<<<...>>>: no stream in the second of two launches
#include <cuda_runtime.h>

__global__ void k(const float* x, const float* y, float* out, long long from, long long n) {
    for (long long i = from + threadIdx.x; i < n; i += 1024) out[i] = x[i] + y[i];
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    const long long half = n / 2;
    k<<<1, 1024, 0, stream>>>(x, y, out, 0, half);
    k<<<dim3(1, 1, 1), dim3(1024, 1, 1)>>>(x, y, out, half, n);  // HERE
    return cudaGetLastError();
}
