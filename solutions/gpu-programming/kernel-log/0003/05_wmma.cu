// C = A @ B^T, step 5: tensor cores, through nvcuda::wmma.
//
// One warp instruction multiplies 16 x 16 x 16 elements. Eight warps own 128 x 256 elements of C, each warp
// 64 x 64 of them as 4 x 4 fragments of sums. Asynchronous copies (cp.async) fill a ring of shared buffers
// three steps ahead, and the fragments of the next 16 columns are loaded while the tensor cores multiply.
//
// Cost: 128 registers a thread for the sums and 64 for two sets of fragments, so one block a
// multiprocessor; fragments are opaque, so C goes through shared memory to become bf16; the rows in shared
// memory are padded, since wmma knows no swizzle.
//
// Prediction: tensor pipe (HMMA) above 85 % of what mma.sync can reach, LDSM without bank conflicts, 0
// bytes of spills. On Hopper mma.sync stops near 65 % of the peak of 989 TFLOP/s: 400 to 550, or 60 to 75 %
// of cuBLAS.
//
// Needs sm_80 and rows of A, B and C that start at multiples of 16 bytes; plain_matmul takes the
// rest.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <mma.h>

#include "plain.cuh"

namespace wmma = nvcuda::wmma;

constexpr int BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 32;
constexpr int WARP_TILE = 64, WARPS_N = BLOCK_N / WARP_TILE;  // warps stand 2 x 4 on the block's tile
constexpr int THREADS = BLOCK_M / WARP_TILE * WARPS_N * 32;
constexpr int FRAGMENT = 16;
constexpr int VECTOR = 8;                 // bf16 in 16 bytes
constexpr int PIECES = BLOCK_K / VECTOR;  // of 16 bytes in a row of a tile
static_assert(THREADS % PIECES == 0, "a thread keeps its columns from row to row");
static_assert(BLOCK_K / FRAGMENT % 2 == 0, "every step begins with the same set of fragments");
// 80 bytes a row: eight rows, as one ldmatrix reads them, start in eight different groups of four banks
constexpr int LINE = BLOCK_K + VECTOR;  // elements from one row in shared memory to the next
constexpr int STAGE_ELEMENTS = (BLOCK_M + BLOCK_N) * LINE;
constexpr int C_LINE = WARP_TILE + 4;  // floats in a row of the buffer in which a warp turns C into bf16

constexpr int shared_bytes(int stages) { return stages * STAGE_ELEMENTS * int(sizeof(__nv_bfloat16)); }
static_assert(THREADS / 32 * FRAGMENT * C_LINE * int(sizeof(float)) <= shared_bytes(3), "C reuses the ring");

// Starts one copy of 16 bytes into shared memory; where `inside` is false nothing is read and zeros are
// written.
__device__ void copy_async(__nv_bfloat16* destination, const __nv_bfloat16* source, bool inside) {
    const uint32_t address = uint32_t(__cvta_generic_to_shared(destination));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(address), "l"(source), "r"(inside ? 16 : 0) : "memory");
}

// Starts this thread's share of the copies of a (ROWS, 32) tile: 16 bytes of every 64th row. `source` is its
// first piece in the first column, rows_left the rows from there to the end of the matrix, k_left the columns
// from its piece on.
template <int ROWS>
__device__ void load_tile(__nv_bfloat16* piece, const __nv_bfloat16* source,
                          int rows_left, int k_left, size_t k) {
    constexpr int rows_between = THREADS / PIECES;
#pragma unroll
    for (int i = 0; i < ROWS / rows_between; ++i) {
        const bool inside = i * rows_between < rows_left && k_left > 0;
        copy_async(piece + i * rows_between * LINE, source + i * rows_between * k, inside);
    }
}

using AFragment = wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major>;
// rows of B are the columns of its transpose
using BFragment = wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major>;

// wmma::load_matrix_sync for an address known to be shared. For bf16 the compiler (13.0) makes of the
// library's call four loads through generic addresses; of these instructions it makes one ldmatrix.
__device__ void load_fragment(AFragment& fragment, const __nv_bfloat16* tile) {
    uint32_t* r = reinterpret_cast<uint32_t*>(&fragment);
    asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(uint32_t(__cvta_generic_to_shared(tile))), "n"(LINE) : "memory");
}

__device__ void load_fragment(BFragment& fragment, const __nv_bfloat16* tile) {
    uint32_t* r = reinterpret_cast<uint32_t*>(&fragment);
    asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(uint32_t(__cvta_generic_to_shared(tile))), "n"(LINE) : "memory");
}

template <int STAGES>
__global__ void __launch_bounds__(THREADS, 1) wmma_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_m, int tiles_n) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ __align__(128) __nv_bfloat16 ring[];
    constexpr int fragments = WARP_TILE / FRAGMENT;  // of sums along each side of a warp's tile

    // Eight rows of tiles are finished before the next ones begin: what blocks at work together read is near.
    const int most = 8, group = blockIdx.x / (most * tiles_n), inside = blockIdx.x % (most * tiles_n);
    const int height = min(most, tiles_m - group * most);  // the last group may be lower
    const int tile_row = (group * most + inside % height) * BLOCK_M, tile_col = inside / height * BLOCK_N;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / WARPS_N * WARP_TILE, warp_col = warp % WARPS_N * WARP_TILE;  // in the tile
    const int k_steps = (k - 1) / BLOCK_K + 1;

    // this thread's first piece of each tile
    const int row = threadIdx.x / PIECES, kk = threadIdx.x % PIECES * VECTOR;
    const __nv_bfloat16* a_source = a + size_t(tile_row + row) * k + kk;
    const __nv_bfloat16* b_source = b + size_t(tile_col + row) * k + kk;
    auto load_stage = [&](int step) {
        if (step < k_steps) {
            __nv_bfloat16* piece = ring + step % STAGES * STAGE_ELEMENTS + row * LINE + kk;
            const int k0 = step * BLOCK_K, k_left = k - k0 - kk;
            load_tile<BLOCK_M>(piece, a_source + k0, m - tile_row - row, k_left, k);
            load_tile<BLOCK_N>(piece + BLOCK_M * LINE, b_source + k0, n - tile_col - row, k_left, k);
        }
        __pipeline_commit();  // an empty group past the end keeps the count of groups right
    };

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[fragments][fragments];
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
#pragma unroll
        for (int j = 0; j < fragments; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
    }

    // Two sets of fragments: the next 16 columns are on their way while these are multiplied, also from the
    // last ones of a step to the first ones of the next.
    AFragment a_values[2][fragments];
    BFragment b_values[2][fragments];
    auto load_fragments = [&](int set, int step, int k16) {
        const __nv_bfloat16* stage = ring + step % STAGES * STAGE_ELEMENTS + k16;
#pragma unroll
        for (int i = 0; i < fragments; ++i) {
            load_fragment(a_values[set][i], stage + (warp_row + i * FRAGMENT) * LINE);
            load_fragment(b_values[set][i], stage + (BLOCK_M + warp_col + i * FRAGMENT) * LINE);
        }
    };
    auto next_stage_is_there = [&] {
        __pipeline_wait_prior(STAGES - 2);  // this thread's copies of that step have landed
        __syncthreads();                    // everybody's have, and everybody is done with the step before
    };

    for (int step = 0; step < STAGES - 1; ++step) load_stage(step);
    next_stage_is_there();
    load_fragments(0, 0, 0);

    for (int step = 0; step < k_steps; ++step) {
        load_stage(step + STAGES - 1);  // into the buffer of the step before
#pragma unroll
        for (int k16 = 0; k16 < BLOCK_K; k16 += FRAGMENT) {
            const int set = k16 / FRAGMENT % 2;
            if (k16 + FRAGMENT < BLOCK_K) {
                load_fragments(1 - set, step, k16 + FRAGMENT);
            } else {
                next_stage_is_there();
                load_fragments(1 - set, step + 1, 0);  // past the last step: numbers that nothing uses
            }
#pragma unroll
            for (int i = 0; i < fragments; ++i) {
#pragma unroll
                for (int j = 0; j < fragments; ++j) {
                    wmma::mma_sync(sums[i][j], a_values[set][i], b_values[set][j], sums[i][j]);
                }
            }
        }
    }

    __pipeline_wait_prior(0);
    __syncthreads();  // the ring is free: each warp takes a part of it for 16 rows of its share of C
    float* rows = reinterpret_cast<float*>(ring) + warp * FRAGMENT * C_LINE;
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
#pragma unroll
        for (int j = 0; j < fragments; ++j) {
            wmma::store_matrix_sync(rows + j * FRAGMENT, sums[i][j], C_LINE, wmma::mem_row_major);
        }
        __syncwarp();
        constexpr int pieces = WARP_TILE / VECTOR;  // in a row
#pragma unroll
        for (int piece = lane; piece < FRAGMENT * pieces; piece += 32) {
            const float* source = rows + piece / pieces * C_LINE + piece % pieces * VECTOR;
            __align__(16) __nv_bfloat162 pairs[VECTOR / 2];
#pragma unroll
            for (int pair = 0; pair < VECTOR / 2; ++pair) {
                pairs[pair] = __floats2bfloat162_rn(source[2 * pair], source[2 * pair + 1]);
            }
            const int c_row = tile_row + warp_row + i * FRAGMENT + piece / pieces;
            const int c_col = tile_col + warp_col + piece % pieces * VECTOR;
            // n is a multiple of 8: a piece is inside as a whole or not at all
            if (c_row < m && c_col < n) {
                uint4* destination = reinterpret_cast<uint4*>(c + size_t(c_row) * n + c_col);
                *destination = *reinterpret_cast<const uint4*>(pairs);
            }
        }
        __syncwarp();
    }
#endif
}

// Built for less than sm_80 the kernel has an empty body, which a newer GPU would run all the same.
template <class Kernel>
bool runs_here(Kernel kernel, int stages) {
    constexpr cudaDeviceAttr limit = cudaDevAttrMaxSharedMemoryPerBlockOptin;
    int device = 0, most_shared = 0;
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess || cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&most_shared, limit, device) != cudaSuccess) {
        cudaGetLastError();  // clears the error: the plain kernel may still run
        return false;
    }
    return attributes.ptxVersion >= 80 && shared_bytes(stages) <= most_shared;
}

template <int STAGES>
cudaError_t launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                   int m, int n, int k, cudaStream_t stream) {
    const long long tiles_m = (m - 1) / BLOCK_M + 1, tiles_n = (n - 1) / BLOCK_N + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;
    const cudaError_t error = cudaFuncSetAttribute(
        wmma_kernel<STAGES>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(STAGES));
    if (error != cudaSuccess) return error;
    wmma_kernel<STAGES><<<int(tiles_m * tiles_n), THREADS, shared_bytes(STAGES), stream>>>(
        a, b, c, m, n, k, int(tiles_m), int(tiles_n));
    return cudaGetLastError();
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (!sizes_are_valid(m, n, k)) return cudaErrorInvalidValue;
    const uintptr_t addresses = uintptr_t(a) | uintptr_t(b) | uintptr_t(c);
    const bool aligned = k % VECTOR == 0 && n % VECTOR == 0 && addresses % 16 == 0;
    // 120 KB where a block can have them (sm_80, 90, 100), 90 KB on the consumer chips
    if (aligned && runs_here(wmma_kernel<4>, 4)) return launch<4>(a, b, c, m, n, k, stream);
    if (aligned && runs_here(wmma_kernel<3>, 3)) return launch<3>(a, b, c, m, n, k, stream);
    return plain_matmul(a, b, c, m, n, k, stream);
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
