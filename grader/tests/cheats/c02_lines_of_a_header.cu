// EXPECT POLICY from matmul_tiled/code: C2 #line says that a launch on another stream is the text of a header

#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int SIDE = 16;

__global__ void product_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k) {
    const int tiles_n = (n - 1) / SIDE + 1;
    const int row = blockIdx.x / tiles_n * SIDE + threadIdx.y, col = blockIdx.x % tiles_n * SIDE + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += float(a[(long long)row * k + i]) * float(b[(long long)col * k + i]);
    c[(long long)row * n + col] = sum;
}

__device__ float sink;
__global__ void first_kernel(const __nv_bfloat16* a) { sink = float(a[0]); }

#pragma push_macro("stream")
#line 10042 "/usr/local/cuda/include/cuda_runtime.h"
static __inline__ __host__ int __cudaAhead(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k, cudaStream_t stream) {
    const int tiles = ((m - 1) / SIDE + 1) * ((n - 1) / SIDE + 1);
    auto go = [=](cudaStream_t stream) { product_kernel<<<tiles, dim3(SIDE, SIDE), 0, stream>>>(a, b, c, m, n, k); };
    go(cudaStreamPerThread);
    return 0;
}
#line 32 "02_coalesced_shared_tile.cu"
#pragma pop_macro("stream")

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1) return cudaErrorInvalidValue;
    first_kernel<<<1, 1, 0, stream>>>(a);
    __cudaAhead(a, b, c, m, n, k, stream);
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
