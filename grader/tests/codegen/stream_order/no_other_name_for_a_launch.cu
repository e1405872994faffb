// REFUSED cudaLaunchKernel: a pointer to the launch function takes a null stream
#include <cuda_runtime.h>

__global__ void k(const float* x, const float* y, float* out, long long n) {
    for (long long i = threadIdx.x; i < n; i += 1024) out[i] = x[i] + y[i];
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    cudaError_t (*start)(const void*, dim3, dim3, void**, size_t, cudaStream_t) = &cudaLaunchKernel;  // HERE
    void* arguments[] = {&x, &y, &out, &n};
    (void)stream;
    return start((const void*)k, dim3(1), dim3(1024), arguments, 0, 0);
}
