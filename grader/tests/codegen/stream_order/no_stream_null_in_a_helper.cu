// REFUSED launch: the launch takes a stream parameter; the caller gives it a null stream
#include <cuda_runtime.h>

__global__ void k(const float* x, const float* y, float* out, long long n) {
    for (long long i = threadIdx.x; i < n; i += 1024) out[i] = x[i] + y[i];
}

static int launch(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    k<<<1, 1024, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    (void)stream;
    return launch(x, y, out, n, nullptr);  // HERE
}
