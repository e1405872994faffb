// REFUSED cudaMalloc: a buffer that is made in the first call and kept
#include <cuda_runtime.h>

__global__ void k(const float* x, float* part, float* out, long long n) {
    float sum = 0;
    for (long long i = 0; i < n; ++i) sum += x[i];
    *part = sum, *out = sum;
}

static float* scratch;

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    if (!scratch && cudaMalloc(&scratch, 4096) != cudaSuccess) return 2;  // HERE
    k<<<1, 1, 0, stream>>>(x, scratch, out, n);
    return cudaGetLastError();
}
