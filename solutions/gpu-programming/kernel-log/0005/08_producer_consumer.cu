// C = A @ B^T, step 8: producer and consumer warpgroups around a ring of buffers.
//
// The waits leave the warps that multiply. One thread of a producer warpgroup keeps four stages of tiles in
// flight; the consumer warpgroup multiplies stage after stage. Two mbarriers for each stage say `full` (the
// bytes have landed) and `empty` (all consumer warps are done with it); each side counts laps by one parity
// bit. The consumer also leaves one group of products running while it starts the next, so the tensor cores
// never drain.
//
// Cost: 128 KB of shared memory and the registers of a warpgroup that only waits, so one block a
// multiprocessor, whose epilogue overlaps nothing yet.
//
// Prediction: tensor pipe 55 to 70 % busy; the consumers' barrier stalls nearly gone; 450 to 550 TFLOP/s.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "hopper.cuh"
#include "plain.cuh"

constexpr int BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 64;
static_assert(BLOCK_K == SWIZZLE_COLUMNS, "a row of a stage is one swizzled row");
constexpr int CONSUMERS = 1;  // warpgroups that multiply, behind the producer's
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int STAGES = 4;
constexpr int A_BYTES = BLOCK_M * BLOCK_K * BF16_BYTES;
constexpr int B_BYTES = BLOCK_N * BLOCK_K * BF16_BYTES;
constexpr int SHARED_BYTES = STAGES * (A_BYTES + B_BYTES) + ALIGNMENT;

// The stage that one side of the ring works on, and the parity of its lap.
struct Ring {
    int stage = 0;
    uint32_t parity = 0;

    __device__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

__global__ void __launch_bounds__(THREADS, 1) matmul_kernel(
    const __grid_constant__ CUtensorMap a_map,  // (m, k) in boxes of BLOCK_M x 64
    const __grid_constant__ CUtensorMap b_map,  // (n, k) in boxes of BLOCK_N x 64
    __nv_bfloat16* c,                           // (m, n), rows contiguous, n even
    int m, int n, int k, int tiles_m) {
#ifdef HOPPER_CODE
    constexpr int step_m = 64, step_k = 16;  // of one wgmma
    constexpr int step_m_bytes = step_m * BLOCK_K * BF16_BYTES;
    constexpr int rows_each = BLOCK_M / CONSUMERS;  // of C, for each consumer

    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES];
    const uint32_t a_ring = align_tile(shared_address(shared)), b_ring = a_ring + STAGES * A_BYTES;
    const uint32_t full = shared_address(barriers), empty = full + STAGES * 8;

    const int tile_row = blockIdx.x % tiles_m * BLOCK_M, tile_col = blockIdx.x / tiles_m * BLOCK_N;
    const int k_steps = (k - 1) / BLOCK_K + 1;
    const int warpgroup = threadIdx.x / 128;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + stage * 8, 1);               // the producer's announcement, and the bytes
            barrier_init(empty + stage * 8, CONSUMERS * 4);  // each warp for itself: they may finish apart
        }
        fence_barrier_init();
    }
    __syncthreads();

    if (warpgroup == 0) {
        if (threadIdx.x == 0) {
            Ring ring;
            for (int step = 0; step < k_steps; ++step, ring.advance()) {
                // in the first lap this asks for the phase before the first one, which counts as over
                barrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
                const uint32_t loaded = full + ring.stage * 8;
                // the boxes arrive whole, zeros included, so the bytes are the same at the edges
                barrier_expect(loaded, A_BYTES + B_BYTES);
                tma_load(a_ring + ring.stage * A_BYTES, a_map, loaded, tile_row, step * BLOCK_K);
                tma_load(b_ring + ring.stage * B_BYTES, b_map, loaded, tile_col, step * BLOCK_K);
            }
        }
    } else {
        const int consumer = warpgroup - 1;
        const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;

        float sums[rows_each / step_m][BLOCK_N / 2];
        Ring ring;
        int previous = 0;  // the stage of the step before
        for (int step = 0; step < k_steps; ++step, ring.advance()) {
            const uint64_t a =
                matrix_descriptor(a_ring + ring.stage * A_BYTES + consumer * (A_BYTES / CONSUMERS));
            const uint64_t b = matrix_descriptor(b_ring + ring.stage * B_BYTES);
            barrier_wait(full + ring.stage * 8, ring.parity);

            wgmma_fence();
#pragma unroll
            for (int kk = 0; kk < BLOCK_K; kk += step_k) {
                const uint64_t move = descriptor_step(kk * BF16_BYTES);
#pragma unroll
                for (int i = 0; i < rows_each / step_m; ++i) {
                    const uint64_t down = descriptor_step(i * step_m_bytes);
                    wgmma<BLOCK_N>(sums[i], a + down + move, b + move, step + kk > 0);
                }
            }
            wgmma_commit();
            wgmma_wait<1>();  // this step runs on; the one before is done, so its stage is free
            if (step > 0 && lane == 0) barrier_arrive(empty + previous * 8);
            previous = ring.stage;
        }
        wgmma_wait<0>();

        const int row = tile_row + consumer * rows_each + 16 * warp + lane / 4;
        const int col = tile_col + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < rows_each / step_m; ++i) {
#pragma unroll
            for (int j = 0; j < BLOCK_N / 8; ++j) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int r = row + i * step_m + 8 * h;
                    if (r < m && col + 8 * j < n) {
                        const uint32_t pair = pack(sums[i][4 * j + 2 * h], sums[i][4 * j + 2 * h + 1]);
                        *reinterpret_cast<uint32_t*>(c + size_t(r) * n + col + 8 * j) = pair;
                    }
                }
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
    if (error == cudaSuccess) {
        error = cudaFuncSetAttribute(
            matmul_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    }
    if (error != cudaSuccess) return error;

    matmul_kernel<<<int(tiles_m * tiles_n), THREADS, SHARED_BYTES, stream>>>(
        a_map, b_map, c, m, n, k, int(tiles_m));
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
