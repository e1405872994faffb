// C = A @ B^T, step 12: clusters of two blocks that share B by multicast.
//
// Two blocks of one cluster work on tiles above each other, which need the same 256 rows of B. Each fetches
// half of them and the copy engine writes them into both blocks: a stage costs 32 KB from L2 instead of 48.
//
// Cost: the two blocks move in step. A stage may be filled only when the consumers of both are done with
// it, so each consumer warp arrives at both blocks' `empty` barriers; and no block may leave while the
// other can still reach into its shared memory, hence a cluster barrier at both ends. An odd row of tiles
// leaves half a cluster with nothing to do.
//
// Prediction: bytes from L2 to the multiprocessors down by a third, the same tensor pipe or a little more;
// 0 to 4 %, least where the power limit and not L2 sets the pace.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "hopper.cuh"
#include "plain.cuh"

constexpr int BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 64;
static_assert(BLOCK_K == SWIZZLE_COLUMNS, "a row of a stage is one swizzled row");
constexpr int CONSUMERS = 2;  // warpgroups that multiply, behind the producer's
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int STAGES = 4;
constexpr int CLUSTER = 2;  // blocks, with tiles above each other
constexpr int A_BYTES = BLOCK_M * BLOCK_K * BF16_BYTES;
constexpr int B_BYTES = BLOCK_N * BLOCK_K * BF16_BYTES;
constexpr int C_ROWS = 64;    // of the box of C, 64 columns wide, that one consumer writes at a time
constexpr int C_BUFFERS = 2;  // for each consumer: one is filled while TMA reads the other
constexpr int C_BYTES = C_ROWS * SWIZZLE_COLUMNS * BF16_BYTES;
constexpr int SHARED_BYTES = STAGES * (A_BYTES + B_BYTES) + CONSUMERS * C_BUFFERS * C_BYTES + ALIGNMENT;

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

struct Tile {
    int row, col;  // of its first element
};

// The tile of block `rank` when its cluster takes pair number `index`. pairs_m counts the rows of pairs.
__device__ Tile tile_at(int index, int rank, int pairs_m, int tiles_n) {
    constexpr int most = 8;  // rows of pairs that are finished before the next ones begin
    const int group = index / (most * tiles_n), inside = index % (most * tiles_n);
    const int height = min(most, pairs_m - group * most);  // the last group may be lower
    return {((group * most + inside % height) * CLUSTER + rank) * BLOCK_M, inside / height * BLOCK_N};
}

__global__ void __launch_bounds__(THREADS, 1) matmul_kernel(
    const __grid_constant__ CUtensorMap a_map,  // (m, k) in boxes of BLOCK_M x 64
    const __grid_constant__ CUtensorMap b_map,  // (n, k) in boxes of BLOCK_N / CLUSTER x 64
    const __grid_constant__ CUtensorMap c_map,  // (m, n) in boxes of C_ROWS x 64
    int k, int pairs_m, int tiles_n) {
#ifdef HOPPER_CODE
    constexpr int step_m = 64, step_k = 16;         // of one wgmma
    constexpr int rows_each = BLOCK_M / CONSUMERS;  // of C, for each consumer
    static_assert(rows_each == step_m && rows_each == C_ROWS, "one wgmma and one box of C each");

    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES];
    const uint32_t a_ring = align_tile(shared_address(shared)), b_ring = a_ring + STAGES * A_BYTES;
    const uint32_t c_buffers = b_ring + STAGES * B_BYTES;
    const uint32_t full = shared_address(barriers), empty = full + STAGES * 8;

    const int rank = cluster_rank(), pairs = pairs_m * tiles_n;
    const int first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;  // of the pairs of this cluster
    const int k_steps = (k - 1) / BLOCK_K + 1;
    const int warpgroup = threadIdx.x / 128;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + stage * 8, 1);  // the producer's announcement, and the bytes
            // each consumer warp of both blocks for itself: they may finish apart
            barrier_init(empty + stage * 8, CLUSTER * CONSUMERS * 4);
        }
        fence_barrier_init();
    }
    cluster_sync();  // the other block's barriers are ready, too

    if (warpgroup == 0) {
        give_up_registers<24>();
        if (threadIdx.x == 0) {
            Ring ring;
            for (int index = first; index < pairs; index += stride) {
                const Tile tile = tile_at(index, rank, pairs_m, tiles_n);
                for (int step = 0; step < k_steps; ++step, ring.advance()) {
                    // in the first lap this asks for the phase before the first one, which counts as over
                    barrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
                    const uint32_t loaded = full + ring.stage * 8;
                    // all of B, though the other block sends half of it, perhaps before this announcement
                    barrier_expect(loaded, A_BYTES + B_BYTES);
                    tma_load(a_ring + ring.stage * A_BYTES, a_map, loaded, tile.row, step * BLOCK_K);
                    const uint32_t half = b_ring + ring.stage * B_BYTES + rank * (B_BYTES / CLUSTER);
                    const int half_col = tile.col + rank * (BLOCK_N / CLUSTER);
                    tma_load_multicast(half, b_map, loaded, half_col, step * BLOCK_K, (1 << CLUSTER) - 1);
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
        Ring ring;
        for (int index = first; index < pairs; index += stride) {
            const Tile tile = tile_at(index, rank, pairs_m, tiles_n);
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
                if (step > 0 && lane < CLUSTER) barrier_arrive_cluster(empty + previous * 8, lane);
                previous = ring.stage;
            }
            wgmma_wait<0>();
            if (lane < CLUSTER) barrier_arrive_cluster(empty + previous * 8, lane);

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
    cluster_sync();  // the other block may still arrive at barriers of this one
#endif
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (!sizes_are_valid(m, n, k)) return cudaErrorInvalidValue;
    if (!tma_takes(a, k) || !tma_takes(b, k) || !tma_takes(c, n) || !runs_on_hopper(matmul_kernel)) {
        return plain_matmul(a, b, c, m, n, k, stream);
    }
    const long long pairs_m = (m - 1) / (CLUSTER * BLOCK_M) + 1, tiles_n = (n - 1) / BLOCK_N + 1;
    if (pairs_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    CUtensorMap a_map, b_map, c_map;
    cudaError_t error = describe_matrix(&a_map, a, m, k, BLOCK_M);
    if (error == cudaSuccess) error = describe_matrix(&b_map, b, n, k, BLOCK_N / CLUSTER);
    if (error == cudaSuccess) error = describe_matrix(&c_map, c, m, n, C_ROWS);
    if (error == cudaSuccess) {
        error = cudaFuncSetAttribute(
            matmul_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    }
    if (error != cudaSuccess) return error;

    int device = 0, multiprocessors = 0;
    error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (error != cudaSuccess) return error;

    const long long most = pairs_m * tiles_n, at_once = multiprocessors / CLUSTER;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {CLUSTER, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(most < at_once ? most : at_once) * CLUSTER);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = SHARED_BYTES;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, matmul_kernel, a_map, b_map, c_map, k, int(pairs_m), int(tiles_n));
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
