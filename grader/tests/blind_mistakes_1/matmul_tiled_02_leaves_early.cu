// gpu-programming/cuda-kernels/matmul/02_coalesced_shared_tile.cu | corner | threads whose element lies outside of C leave with `if (row >= m or col >= n) return;` before the loop, so they neither load their part of the tiles nor reach the barriers: with fewer than 32 rows (columns) left, rows of b_tile (columns of a_tile) that the others need stay unset | "A thread that returned early never reaches a barrier that others wait at", "Sizes may be anything from 1 on"; only edge tiles, where m or n is not a multiple of 32; shows on a GPU
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 32;
constexpr int LARGEST_SIZE = 1 << 30;

__global__ void __launch_bounds__(BLOCK * BLOCK)
shared_tile_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k, int tiles_n) {
    __shared__ __nv_bfloat16 sa[BLOCK][BLOCK + 2];
    __shared__ __nv_bfloat16 sb[BLOCK][BLOCK + 2];

    const int lane = threadIdx.x % BLOCK;
    const int line = threadIdx.x / BLOCK;
    const int m0 = (blockIdx.x / tiles_n) * BLOCK;
    const int n0 = (blockIdx.x % tiles_n) * BLOCK;
    const int row = m0 + line;
    const int col = n0 + lane;
    if (row >= m || col >= n) return;

    const __nv_bfloat16 zero = __float2bfloat16(0.0f);
    float acc = 0.0f;
    const int steps = (k + BLOCK - 1) / BLOCK;
    for (int s = 0; s < steps; s++) {
        const int kk = s * BLOCK + lane;
        sa[line][lane] = kk < k ? a[(size_t)row * k + kk] : zero;
        sb[line][lane] = (kk < k && n0 + line < n) ? b[(size_t)(n0 + line) * k + kk] : zero;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BLOCK; i++) {
            acc += __bfloat162float(sa[line][i]) * __bfloat162float(sb[lane][i]);
        }
        __syncthreads();
    }
    c[(size_t)row * n + col] = __float2bfloat16(acc);
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1 || m > LARGEST_SIZE || n > LARGEST_SIZE || k > LARGEST_SIZE) {
        return cudaErrorInvalidValue;
    }
    const long long tiles_m = (m - 1) / BLOCK + 1, tiles_n = (n - 1) / BLOCK + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;
    const dim3 grid(static_cast<unsigned>(tiles_m * tiles_n)), block(BLOCK * BLOCK);
    shared_tile_kernel<<<grid, block, 0, stream>>>(a, b, c, m, n, k, static_cast<int>(tiles_n));
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
