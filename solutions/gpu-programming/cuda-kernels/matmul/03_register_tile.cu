// C = A @ B^T, step 3: 8 x 8 sums in the registers of each thread.
//
// A value read from shared memory is used eight times. A block of 16 x 16 threads owns 128 x 128 elements
// of C, a thread 64 of them, 16 apart in both directions; each step of k costs 8 + 8 shared loads for 64
// multiply-adds.
//
// Cost: 64 registers for the sums, so about 2 blocks (512 threads) fit on a multiprocessor instead of 2048
// threads; independent sums hide the latency that many threads hid before.
//
// Prediction: shared loads for each FMA from 2 to 1/4, FMA pipe from a tenth to more than half busy; 20 to
// 35 TFLOP/s of the 67 that the fp32 units have, about 4 % of cuBLAS, which uses the tensor cores.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 128, BLOCK_K = 16;
constexpr int SIDE = 16;            // threads along each side of the block
constexpr int SUMS = BLOCK / SIDE;  // sums along each side of a thread's share
constexpr int LARGEST_SIZE = 1 << 30;  // beyond this the index of a tile's last row could leave the int range

// Copies rows [row0, row0 + 128) and columns [k0, k0 + 16) of a (rows, k) matrix; zeros outside of it.
__device__ void load_tile(float (&tile)[BLOCK][BLOCK_K + 1], const __nv_bfloat16* matrix,
                          int rows, int k, int row0, int k0) {
    const int column = threadIdx.x % BLOCK_K;
    for (int i = threadIdx.x / BLOCK_K; i < BLOCK; i += SIDE * SIDE / BLOCK_K) {
        const bool inside = row0 + i < rows && k0 + column < k;
        tile[i][column] = inside ? __bfloat162float(matrix[size_t(row0 + i) * k + k0 + column]) : 0.0f;
    }
}

__global__ void __launch_bounds__(SIDE * SIDE, 2) register_tile_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_n) {
    // 17 words a row: the 16 rows that a half warp reads at once lie in 16 banks
    __shared__ float a_tile[BLOCK][BLOCK_K + 1], b_tile[BLOCK][BLOCK_K + 1];

    const int tile_row = blockIdx.x / tiles_n * BLOCK, tile_col = blockIdx.x % tiles_n * BLOCK;
    const int ty = threadIdx.x / SIDE, tx = threadIdx.x % SIDE;  // [0, 16)

    float sums[SUMS][SUMS] = {};
    for (int k0 = 0; k0 < k; k0 += BLOCK_K) {
        load_tile(a_tile, a, m, k, tile_row, k0);
        load_tile(b_tile, b, n, k, tile_col, k0);
        __syncthreads();

#pragma unroll
        for (int kk = 0; kk < BLOCK_K; ++kk) {
            float a_values[SUMS], b_values[SUMS];
#pragma unroll
            for (int i = 0; i < SUMS; ++i) a_values[i] = a_tile[ty + i * SIDE][kk];
#pragma unroll
            for (int j = 0; j < SUMS; ++j) b_values[j] = b_tile[tx + j * SIDE][kk];
#pragma unroll
            for (int i = 0; i < SUMS; ++i) {
#pragma unroll
                for (int j = 0; j < SUMS; ++j) sums[i][j] += a_values[i] * b_values[j];
            }
        }
        __syncthreads();  // the next round overwrites the tiles
    }

#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
#pragma unroll
        for (int j = 0; j < SUMS; ++j) {
            const int row = tile_row + ty + i * SIDE, col = tile_col + tx + j * SIDE;
            if (row < m && col < n) c[size_t(row) * n + col] = __float2bfloat16_rn(sums[i][j]);
        }
    }
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1 || m > LARGEST_SIZE || n > LARGEST_SIZE || k > LARGEST_SIZE) {
        return cudaErrorInvalidValue;
    }
    const long long tiles_m = (m - 1) / BLOCK + 1, tiles_n = (n - 1) / BLOCK + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    register_tile_kernel<<<int(tiles_m * tiles_n), SIDE * SIDE, 0, stream>>>(a, b, c, m, n, k, int(tiles_n));
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
