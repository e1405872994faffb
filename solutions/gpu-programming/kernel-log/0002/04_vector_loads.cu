// C = A @ B^T, step 4: 16 bytes for each load instruction.
//
// A load instruction costs the same for 2 bytes as for 16. Eight bf16 come from device memory at once, and
// the tiles lie in shared memory with k as the slow dimension, so that a thread's eight values of A are two
// float4.
//
// Cost: the transposing store would put two lanes in one bank; swapping the halves of each 32 rows in the
// upper 8 steps of k (an XOR with 16) keeps them apart without padding, and keeps every float4 aligned.
//
// Prediction: shared load instructions for each FMA from 1/4 to 1/16, global ones down by 8, bank conflicts
// near 0; FMA pipe above 70 %, 35 to 50 TFLOP/s. This is the end of the road without tensor cores.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 128, BLOCK_K = 16;
constexpr int SIDE = 16;            // threads along each side of the block
constexpr int SUMS = BLOCK / SIDE;  // sums along each side of a thread's share: two groups of 4, 64 apart
constexpr int VECTOR = 8;           // bf16 in 16 bytes
constexpr int LARGEST_SIZE = 1 << 30;  // beyond this the index of a tile's last row could leave the int range

// Where row `row` of the tile lies in line kk of shared memory.
__device__ int place(int kk, int row) { return row ^ (kk / VECTOR * 16); }

// Copies rows [row0, row0 + 128) and columns [k0, k0 + 16) of a (rows, k) matrix; zeros outside of it.
// The 256 threads take 8 elements each: two lanes share the 32 bytes of a row.
__device__ void load_tile(float (&tile)[BLOCK_K][BLOCK], const __nv_bfloat16* matrix,
                          int rows, int k, int row0, int k0, bool vectors) {
    const int row = threadIdx.x / 2, kk = threadIdx.x % 2 * VECTOR;
    const __nv_bfloat16* source = matrix + size_t(row0 + row) * k + k0 + kk;

    __align__(16) __nv_bfloat16 values[VECTOR] = {};  // zeros
    if (row0 + row < rows) {
        if (vectors && k0 + kk < k) {
            *reinterpret_cast<uint4*>(values) = *reinterpret_cast<const uint4*>(source);
        } else {
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                if (k0 + kk + i < k) values[i] = source[i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) tile[kk + i][place(kk, row)] = __bfloat162float(values[i]);
}

// Reads the eight values of one thread: rows 4 * index .. 4 * index + 3, and the same 64 rows on.
__device__ void read_values(float (&values)[SUMS], const float (&line)[BLOCK], int kk, int index) {
    const float* first = line + place(kk, 4 * index);
    const float* second = line + place(kk, 64 + 4 * index);
    *reinterpret_cast<float4*>(values) = *reinterpret_cast<const float4*>(first);
    *reinterpret_cast<float4*>(values + 4) = *reinterpret_cast<const float4*>(second);
}

__global__ void __launch_bounds__(SIDE * SIDE, 2) vector_loads_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_n,
    bool vectors  // every row of A and B starts at a multiple of 16 bytes
) {
    __shared__ __align__(16) float a_tile[BLOCK_K][BLOCK], b_tile[BLOCK_K][BLOCK];

    const int tile_row = blockIdx.x / tiles_n * BLOCK, tile_col = blockIdx.x % tiles_n * BLOCK;
    const int ty = threadIdx.x / SIDE, tx = threadIdx.x % SIDE;  // [0, 16)

    float sums[SUMS][SUMS] = {};
    for (int k0 = 0; k0 < k; k0 += BLOCK_K) {
        load_tile(a_tile, a, m, k, tile_row, k0, vectors);
        load_tile(b_tile, b, n, k, tile_col, k0, vectors);
        __syncthreads();

#pragma unroll
        for (int kk = 0; kk < BLOCK_K; ++kk) {
            __align__(16) float a_values[SUMS];
            __align__(16) float b_values[SUMS];
            read_values(a_values, a_tile[kk], kk, ty);
            read_values(b_values, b_tile[kk], kk, tx);
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
            const int row = tile_row + i / 4 * 64 + 4 * ty + i % 4;
            const int col = tile_col + j / 4 * 64 + 4 * tx + j % 4;
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

    const bool vectors = k % VECTOR == 0 && (uintptr_t(a) | uintptr_t(b)) % 16 == 0;
    vector_loads_kernel<<<int(tiles_m * tiles_n), SIDE * SIDE, 0, stream>>>(
        a, b, c, m, n, k, int(tiles_n), vectors);
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
