// ALLOWED: a memset and a copy on the device, both on the stream, in a helper with a template argument
#include <cuda_runtime.h>

template <int WIDTH, typename T>
__global__ void accumulate(const T* __restrict__ x, T* total, long long n) {
    T mine = T(0);
    for (long long i = threadIdx.x; i < n; i += WIDTH) mine += x[i];
    atomicAdd(total, mine);
}

template <int WIDTH, typename T>
static cudaError_t run(const T* x, T* out, long long n, cudaStream_t stream) {
    T* total = nullptr;
    if (auto bad = cudaMallocAsync(&total, sizeof(T), stream); bad != cudaSuccess) return bad;
    (void)cudaMemsetAsync(total, 0, sizeof(T), stream);
    accumulate<WIDTH, T><<<1, WIDTH, 0, stream>>>(x, total, n);
    (void)cudaMemcpyAsync(out, total, sizeof(T), cudaMemcpyDeviceToDevice, stream);
    (void)cudaFreeAsync(total, stream);
    return cudaGetLastError();
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    if (n <= 4096) return run<64, float>(x, out, n, stream);
    return (run<256>)(x, out, n, stream);
}
