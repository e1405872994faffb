// C = A @ B^T, step 13: step 11 with the width of the tile following the shape.
//
// At 1024 x 1024 there are 32 tiles of 128 x 256 for 132 multiprocessors, so three quarters of the chip
// idle; at 8192 x 8192 there are 15.5 for each, so in the last wave half of it does. The kernel becomes a
// template of the tile's width, 256, 192, 128 or 64, and the launcher takes the one with the least estimated
// time: waves of tiles times the time of one tile. The clusters of step 12 are gone: what they save did not
// show where power sets the pace, and at 2048 they made it slower.
//
// Cost: four kernels in the file. A narrow tile loads more bytes for each product, so half the width takes
// more than half the time; the table of relative times holds estimates, and a measurement should replace
// them. A box of B that crosses the edge, as the last one of 8192 = 42 x 192 + 128 does, multiplies zeros.
//
// Prediction: at 1024 x 1024 x 1024, 128 busy multiprocessors instead of 32 and about half the time, most
// of the rest being launch and first loads; at 8192, 21 waves of 192 instead of 16 of 256, 1.6 % less;
// where 128 x 256 fills the chip, no change to step 11.

#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "hopper.cuh"
#include "plain.cuh"

constexpr int BLOCK_M = 128, BLOCK_K = 64;  // BLOCK_N is the template's
static_assert(BLOCK_K == SWIZZLE_COLUMNS, "a row of a stage is one swizzled row");
constexpr int CONSUMERS = 2;  // warpgroups that multiply, behind the producer's
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int A_BYTES = BLOCK_M * BLOCK_K * BF16_BYTES;
constexpr int C_ROWS = 64;    // of the box of C, 64 columns wide, that one consumer writes at a time
constexpr int C_BUFFERS = 2;  // for each consumer: one is filled while TMA reads the other
constexpr int C_BYTES = C_ROWS * SWIZZLE_COLUMNS * BF16_BYTES;
constexpr int RING_BYTES = 192 * 1024;
static_assert(RING_BYTES % A_BYTES == 0, "whole stages at every width");
constexpr int SHARED_BYTES = RING_BYTES + CONSUMERS * C_BUFFERS * C_BYTES + ALIGNMENT;

// The stage that one side of the ring works on, and the parity of its lap.
template <int STAGES>
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

struct Tile {
    int row, col;  // of its first element
};

template <int BLOCK_N>
__device__ Tile tile_at(int index, int tiles_m, int tiles_n) {
    constexpr int most = 16;  // rows of tiles that are finished before the next ones begin
    const int group = index / (most * tiles_n), inside = index % (most * tiles_n);
    const int height = min(most, tiles_m - group * most);  // the last group may be lower
    return {(group * most + inside % height) * BLOCK_M, inside / height * BLOCK_N};
}

template <int BLOCK_N>
__global__ void __launch_bounds__(THREADS, 1) matmul_kernel(
    const __grid_constant__ CUtensorMap a_map,  // (m, k) in boxes of BLOCK_M x 64
    const __grid_constant__ CUtensorMap b_map,  // (n, k) in boxes of BLOCK_N x 64
    const __grid_constant__ CUtensorMap c_map,  // (m, n) in boxes of C_ROWS x 64
    int k, int tiles_m, int tiles_n) {
#ifdef HOPPER_CODE
    constexpr int step_m = 64, step_k = 16;  // of one wgmma
    constexpr int B_BYTES = BLOCK_N * BLOCK_K * BF16_BYTES;
    constexpr int STAGES = RING_BYTES / (A_BYTES + B_BYTES);  // 4, 4, 6 or 8
    constexpr int rows_each = BLOCK_M / CONSUMERS;  // of C, for each consumer
    static_assert(rows_each == step_m && rows_each == C_ROWS, "one wgmma and one box of C each");

    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES];
    const uint32_t a_ring = align_tile(shared_address(shared)), b_ring = a_ring + STAGES * A_BYTES;
    const uint32_t c_buffers = b_ring + STAGES * B_BYTES;
    const uint32_t full = shared_address(barriers), empty = full + STAGES * 8;

    const int tiles = tiles_m * tiles_n;
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
        give_up_registers<24>();
        if (threadIdx.x == 0) {
            Ring<STAGES> ring;
            for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
                const Tile tile = tile_at<BLOCK_N>(index, tiles_m, tiles_n);
                for (int step = 0; step < k_steps; ++step, ring.advance()) {
                    // in the first lap this asks for the phase before the first one, which counts as over
                    barrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
                    const uint32_t loaded = full + ring.stage * 8;
                    // the boxes arrive whole, zeros included, so the bytes are the same at the edges
                    barrier_expect(loaded, A_BYTES + B_BYTES);
                    tma_load(a_ring + ring.stage * A_BYTES, a_map, loaded, tile.row, step * BLOCK_K);
                    tma_load(b_ring + ring.stage * B_BYTES, b_map, loaded, tile.col, step * BLOCK_K);
                }
            }
        }
    } else {
        take_registers<240>();
        const int consumer = warpgroup - 1;
        const int thread = threadIdx.x % 128, warp = thread / 32, lane = threadIdx.x % 32;
        // where this lane's row of four 8 x 8 matrices goes in the swizzled box: see store_matrices
        const int c_row = 16 * warp + lane % 16, c_column = lane / 16;  // the column in units of 8
        const uint32_t my_buffers = c_buffers + consumer * C_BUFFERS * C_BYTES;
        int buffer = 0;

        float sums[BLOCK_N / 2];
        Ring<STAGES> ring;
        for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
            const Tile tile = tile_at<BLOCK_N>(index, tiles_m, tiles_n);
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
                    wgmma<BLOCK_N>(sums, a + move, b + move, step + kk > 0);
                }
                wgmma_commit();
                wgmma_wait<1>();  // this step runs on; the one before is done, so its stage is free
                if (step > 0 && lane == 0) barrier_arrive(empty + previous * 8);
                previous = ring.stage;
            }
            wgmma_wait<0>();
            if (lane == 0) barrier_arrive(empty + previous * 8);

#pragma unroll
            for (int col = 0; col < BLOCK_N; col += SWIZZLE_COLUMNS) {
                const uint32_t box = my_buffers + buffer * C_BYTES;
                // the last copy out of this buffer is done
                if (thread == 0) tma_store_wait_read<C_BUFFERS - 1>();
                named_barrier(1 + consumer, 128);
#pragma unroll
                for (int j = 0; j < SWIZZLE_COLUMNS / 8; j += 2) {
                    const float* values = sums + (col / 8 + j) * 4;
                    // the swizzle: a 16-byte piece of row r lies at its place XOR r % 8
                    store_matrices(box + c_row * 128 + ((j + c_column) ^ (c_row % 8)) * 16,
                                   pack(values[0], values[1]), pack(values[2], values[3]),
                                   pack(values[4], values[5]), pack(values[6], values[7]));
                }
                fence_async_proxy();
                named_barrier(1 + consumer, 128);  // the box is complete
                if (thread == 0) {
                    tma_store(c_map, box, tile.row + consumer * rows_each, tile.col + col);
                    tma_store_commit();
                }
                buffer = (buffer + 1) % C_BUFFERS;
            }
        }
        if (thread == 0) tma_store_wait_read<0>();  // shared memory must outlive the copies
    }
#endif
}

template <int BLOCK_N>
cudaError_t launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                   int m, int n, int k, int multiprocessors, cudaStream_t stream) {
    const long long tiles_m = (m - 1) / BLOCK_M + 1, tiles_n = (n - 1) / BLOCK_N + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    CUtensorMap a_map, b_map, c_map;
    cudaError_t error = describe_matrix(&a_map, a, m, k, BLOCK_M);
    if (error == cudaSuccess) error = describe_matrix(&b_map, b, n, k, BLOCK_N);
    if (error == cudaSuccess) error = describe_matrix(&c_map, c, m, n, C_ROWS);
    if (error == cudaSuccess) {
        error = cudaFuncSetAttribute(
            matmul_kernel<BLOCK_N>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    }
    if (error != cudaSuccess) return error;

    const int blocks = int(tiles_m * tiles_n < multiprocessors ? tiles_m * tiles_n : multiprocessors);
    matmul_kernel<BLOCK_N><<<blocks, THREADS, SHARED_BYTES, stream>>>(
        a_map, b_map, c_map, k, int(tiles_m), int(tiles_n));
    return cudaGetLastError();
}

// The estimated time with tiles of this width, in sixteenths of the time of a tile of 256.
long long estimated_time(int block_n, int tile_time, int m, int n, int multiprocessors) {
    const long long tiles = ((m - 1LL) / BLOCK_M + 1) * ((n - 1LL) / block_n + 1);
    return (tiles + multiprocessors - 1) / multiprocessors * tile_time;
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (!sizes_are_valid(m, n, k)) return cudaErrorInvalidValue;
    if (!tma_takes(a, k) || !tma_takes(b, k) || !tma_takes(c, n) || !runs_on_hopper(matmul_kernel<256>)) {
        return plain_matmul(a, b, c, m, n, k, stream);
    }
    int device = 0, multiprocessors = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (error != cudaSuccess) return error;

    const long long time_256 = estimated_time(256, 16, m, n, multiprocessors);
    const long long time_192 = estimated_time(192, 12, m, n, multiprocessors);
    const long long time_128 = estimated_time(128, 10, m, n, multiprocessors);
    const long long time_64 = estimated_time(64, 7, m, n, multiprocessors);
    const long long least = std::min({time_256, time_192, time_128, time_64});  // the widest of equals
    if (time_256 == least) return launch<256>(a, b, c, m, n, k, multiprocessors, stream);
    if (time_192 == least) return launch<192>(a, b, c, m, n, k, multiprocessors, stream);
    if (time_128 == least) return launch<128>(a, b, c, m, n, k, multiprocessors, stream);
    return launch<64>(a, b, c, m, n, k, multiprocessors, stream);
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
