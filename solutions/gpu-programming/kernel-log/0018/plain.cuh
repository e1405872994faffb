// The product for the cases that a faster kernel does not take: another GPU, or rows that do not start at
// multiples of 16 bytes. Step 2 of this road on 16 x 16 tiles, with nothing tuned.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int PLAIN_BLOCK = 16;

// False for sizes below 1, and for those where the index of a tile's last row could leave the int range.
inline bool sizes_are_valid(int m, int n, int k) {
    constexpr int largest = 1 << 30;
    return m >= 1 && n >= 1 && k >= 1 && m <= largest && n <= largest && k <= largest;
}

// c[row, col] = sum over i of a[row, i] * b[col, i]; thread (ty, tx) owns one element.
static __global__ void plain_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                                    int m, int n, int k, int tiles_n) {
    __shared__ float a_tile[PLAIN_BLOCK][PLAIN_BLOCK + 1], b_tile[PLAIN_BLOCK][PLAIN_BLOCK + 1];
    const int tile_row = blockIdx.x / tiles_n * PLAIN_BLOCK, tile_col = blockIdx.x % tiles_n * PLAIN_BLOCK;
    const int ty = threadIdx.y, tx = threadIdx.x;

    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += PLAIN_BLOCK) {
        const bool k_inside = k0 + tx < k;
        const bool a_inside = k_inside && tile_row + ty < m, b_inside = k_inside && tile_col + ty < n;
        a_tile[ty][tx] = a_inside ? __bfloat162float(a[size_t(tile_row + ty) * k + k0 + tx]) : 0.0f;
        b_tile[ty][tx] = b_inside ? __bfloat162float(b[size_t(tile_col + ty) * k + k0 + tx]) : 0.0f;
        __syncthreads();
        for (int i = 0; i < PLAIN_BLOCK; ++i) sum += a_tile[ty][i] * b_tile[tx][i];
        __syncthreads();
    }
    if (tile_row + ty < m && tile_col + tx < n) {
        c[size_t(tile_row + ty) * n + tile_col + tx] = __float2bfloat16_rn(sum);
    }
}

inline cudaError_t plain_matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                                int m, int n, int k, cudaStream_t stream) {
    const long long tiles_m = (m - 1) / PLAIN_BLOCK + 1, tiles_n = (n - 1) / PLAIN_BLOCK + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;
    const dim3 threads(PLAIN_BLOCK, PLAIN_BLOCK);
    plain_kernel<<<int(tiles_m * tiles_n), threads, 0, stream>>>(a, b, c, m, n, k, int(tiles_n));
    return cudaGetLastError();
}
