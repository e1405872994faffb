// REFUSED cudaStreamSynchronize: a macro from an error check hides the wait
#include <cuda_runtime.h>

#define SYNC(which) cudaStream##which(stream)

__global__ void k(const float* x, const float* y, float* out, long long n) {
    for (long long i = threadIdx.x; i < n; i += 1024) out[i] = x[i] + y[i];
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    k<<<1, 1024, 0, stream>>>(x, y, out, n);
    return SYNC(Synchronize);  // HERE
}
