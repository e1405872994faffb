// ALLOWED: scratch memory in stream order, two kernels, the first error is returned
#include <cuda_runtime.h>

__global__ void partial(const float* x, double* sums, long long n) {
    __shared__ double part[128];
    double mine = 0.0;
    for (long long i = blockIdx.x * 128LL + threadIdx.x; i < n; i += gridDim.x * 128LL) mine += x[i];
    part[threadIdx.x] = mine;
    __syncthreads();
    for (int half = 64; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (!threadIdx.x) sums[blockIdx.x] = part[0];
}

__global__ void last(const double* sums, int count, float* out) {
    double total = 0.0;
    for (int i = 0; i < count; ++i) total += sums[i];
    out[0] = float(total);
}

#define CHECK(call)                         \
    do {                                    \
        cudaError_t status_ = (call);       \
        if (status_ != cudaSuccess) return status_; \
    } while (0)

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t s) {
    int sms, device;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    const int blocks = sms > 0 ? 2 * sms : 32;
    double* sums;
    CHECK(cudaMallocAsync(&sums, sizeof(double) * blocks, s));
    partial<<<blocks, 128, 0, s>>>(x, sums, n);
    last<<<1, 1, 0, s>>>(sums, blocks, out);
    CHECK(cudaFreeAsync(sums, s));
    CHECK(cudaPeekAtLastError());
    return cudaGetLastError();
}
