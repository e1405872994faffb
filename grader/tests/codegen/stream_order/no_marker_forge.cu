// REFUSED #line: a marker says that a launch is in a header
#include <cuda_runtime.h>

__global__ void k(const float* x, const float* y, float* out, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) out[i] = x[i] + y[i];
}
# 1 "/usr/include/stdint.h" 1  // HERE
static void hid(const float* x, const float* y, float* out, long long n) { k<<<1, 256>>>(x, y, out, n); }
# 20 "no_marker_forge.cu" 2
extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    hid(x, y, out, n);
    return cudaGetLastError();
}
