// C = A @ B^T, step 6: Hopper's own path, wgmma fed by TMA.
//
// One thread asks the copy engine (TMA) for whole tiles, and four warps together multiply them straight out
// of shared memory (wgmma), so neither loads nor fragments pass through registers. Both units agree on the
// 128-byte swizzle, which keeps every access free of bank conflicts without padding.
//
// Cost: code for sm_90a only; rows must start at multiples of 16 bytes; a tensor map for each matrix, made
// on the host. Nothing overlaps inside a block: it waits for each pair of tiles; several blocks a
// multiprocessor hide some of that.
//
// Prediction: HGMMA in place of HMMA, fewer instructions for each product by a factor of 10 and more,
// tensor pipe 30 to 45 % busy, most stalls on the barrier; 250 to 350 TFLOP/s. A 64 x 64 tile reads each
// operand too often.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "hopper.cuh"
#include "plain.cuh"

constexpr int BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 64;
static_assert(BLOCK_K == SWIZZLE_COLUMNS, "a row of a stage is one swizzled row");
constexpr int THREADS = 128;  // one warpgroup

__global__ void __launch_bounds__(THREADS) matmul_kernel(
    const __grid_constant__ CUtensorMap a_map,  // (m, k) in boxes of 64 x 64
    const __grid_constant__ CUtensorMap b_map,  // (n, k) in boxes of 64 x 64
    __nv_bfloat16* c,                           // (m, n), rows contiguous, n even
    int m, int n, int k, int tiles_m) {
#ifdef HOPPER_CODE
    constexpr int step_k = 16;  // of one wgmma
    constexpr int tile_bytes = (BLOCK_M + BLOCK_N) * BLOCK_K * BF16_BYTES;
    __shared__ __align__(ALIGNMENT) __nv_bfloat16 a_tile[BLOCK_M * BLOCK_K], b_tile[BLOCK_N * BLOCK_K];
    __shared__ uint64_t loaded_barrier;
    const uint32_t a_address = shared_address(a_tile), b_address = shared_address(b_tile);
    const uint32_t loaded = shared_address(&loaded_barrier);
    const uint64_t a = matrix_descriptor(a_address), b = matrix_descriptor(b_address);

    const int tile_row = blockIdx.x % tiles_m * BLOCK_M, tile_col = blockIdx.x / tiles_m * BLOCK_N;
    if (threadIdx.x == 0) {
        barrier_init(loaded, 1);
        fence_barrier_init();
    }
    __syncthreads();

    float sums[BLOCK_N / 2];
    uint32_t parity = 0;
    for (int k0 = 0; k0 < k; k0 += BLOCK_K) {
        if (threadIdx.x == 0) {
            // the boxes arrive whole, zeros included, so the bytes are the same at the edges
            barrier_expect(loaded, tile_bytes);
            tma_load(a_address, a_map, loaded, tile_row, k0);
            tma_load(b_address, b_map, loaded, tile_col, k0);
        }
        barrier_wait(loaded, parity);
        parity ^= 1;

        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < BLOCK_K; kk += step_k) {
            const uint64_t move = descriptor_step(kk * BF16_BYTES);
            // the first one sets the sums: no need to clear them
            wgmma<BLOCK_N>(sums, a + move, b + move, k0 + kk > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();  // all four warps are done with the tiles
    }

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = tile_row + 16 * warp + lane / 4, col = tile_col + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            if (row + 8 * h < m && col + 8 * j < n) {
                const uint32_t pair = pack(sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]);
                *reinterpret_cast<uint32_t*>(c + size_t(row + 8 * h) * n + col + 8 * j) = pair;
            }
        }
    }
#endif
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (!sizes_are_valid(m, n, k)) return cudaErrorInvalidValue;
    if (!tma_takes(a, k) || !tma_takes(b, k) || !tma_takes(c, n) || !runs_on_hopper(matmul_kernel)) {
        return plain_matmul(a, b, c, m, n, k, stream);
    }
    const long long tiles_m = (m - 1) / BLOCK_M + 1, tiles_n = (n - 1) / BLOCK_N + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    CUtensorMap a_map, b_map;
    cudaError_t error = describe_matrix(&a_map, a, m, k, BLOCK_M);
    if (error == cudaSuccess) error = describe_matrix(&b_map, b, n, k, BLOCK_N);
    if (error != cudaSuccess) return error;

    matmul_kernel<<<int(tiles_m * tiles_n), THREADS, 0, stream>>>(a_map, b_map, c, m, n, k, int(tiles_m));
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
