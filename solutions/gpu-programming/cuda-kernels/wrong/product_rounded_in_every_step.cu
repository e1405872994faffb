// EXPECT WRONG/PRECISION from matmul_naive, hint 1 on a GPU: the sum is kept in bf16

#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void naive_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k) {
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= m || col >= n) return;
    __nv_bfloat16 sum = __float2bfloat16_rn(0.0f);
    for (int i = 0; i < k; ++i) {
        const float term = __bfloat162float(a[size_t(row) * k + i]) * __bfloat162float(b[size_t(col) * k + i]);
        sum = __float2bfloat16_rn(__bfloat162float(sum) + term);
    }
    c[size_t(row) * n + col] = sum;
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k,
                      cudaStream_t stream) {
    naive_kernel<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16), 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}
