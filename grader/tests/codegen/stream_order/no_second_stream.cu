// REFUSED cudaStreamCreateWithFlags: half of the work on a stream of its own, joined by an event
#include <cuda_runtime.h>

__global__ void k(const float* x, const float* y, float* out, long long from, long long n) {
    for (long long i = from + threadIdx.x; i < n; i += 1024) out[i] = x[i] + y[i];
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    static cudaStream_t side = nullptr;  // HERE
    static cudaEvent_t done = nullptr;
    if (!side) {
        cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);  // HERE
        cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    }
    k<<<1, 1024, 0, side>>>(x, y, out, 0, n / 2);
    cudaEventRecord(done, side);
    k<<<1, 1024, 0, stream>>>(x, y, out, n / 2, n);
    cudaStreamWaitEvent(stream, done, 0);
    return cudaGetLastError();
}
