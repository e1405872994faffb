// REFUSED cudaEventQuery: the host asks until the event has happened
#include <cuda_runtime.h>

__global__ void k(const float* x, float* out, long long n) {
    float sum = 0;
    for (long long i = 0; i < n; ++i) sum += x[i];
    *out = sum;
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    cudaEvent_t event;
    cudaEventCreate(&event);  // HERE
    k<<<1, 1, 0, stream>>>(x, out, n);
    cudaEventRecord(event, stream);  // HERE
    while (cudaEventQuery(event) == cudaErrorNotReady) {  // HERE
    }
    return cudaEventDestroy(event);
}
