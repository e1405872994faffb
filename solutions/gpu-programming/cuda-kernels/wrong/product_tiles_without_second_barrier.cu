// EXPECT WRONG/MISMATCH or WRONG/NONDETERMINISTIC from matmul_tiled, hint 1 on a GPU: S41 tiles overwritten while read

#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 32;

__global__ void tile_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k) {
    __shared__ float a_tile[BLOCK][BLOCK + 1], b_tile[BLOCK][BLOCK + 1];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * BLOCK + ty, col = blockIdx.x * BLOCK + tx;
    const int b_row = blockIdx.x * BLOCK + ty;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += BLOCK) {
        const bool inside = k0 + tx < k;
        a_tile[ty][tx] = inside && row < m ? __bfloat162float(a[size_t(row) * k + k0 + tx]) : 0.0f;
        b_tile[ty][tx] = inside && b_row < n ? __bfloat162float(b[size_t(b_row) * k + k0 + tx]) : 0.0f;
        __syncthreads();
        if (ty == 31) __nanosleep(50000);  // a late warp: the others load the next tiles meanwhile
        for (int i = 0; i < BLOCK; ++i) sum += a_tile[ty][i] * b_tile[tx][i];
    }
    if (row < m && col < n) c[size_t(row) * n + col] = __float2bfloat16_rn(sum);
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k,
                      cudaStream_t stream) {
    const dim3 grid((n + BLOCK - 1) / BLOCK, (m + BLOCK - 1) / BLOCK), block(BLOCK, BLOCK);
    tile_kernel<<<grid, block, 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}
