// EXPECT WRONG/MISMATCH from matmul_naive, hint 1 on a GPU: B is read as (k, n), and it is stored as (n, k)

#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void naive_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k) {
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        sum += __bfloat162float(a[size_t(row) * k + i]) * __bfloat162float(b[size_t(i) * n + col]);
    }
    c[size_t(row) * n + col] = __float2bfloat16_rn(sum);
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k,
                      cudaStream_t stream) {
    naive_kernel<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16), 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}
