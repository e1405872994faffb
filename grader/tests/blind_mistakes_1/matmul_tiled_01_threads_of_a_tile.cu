// gpu-programming/cuda-kernels/matmul/02_coalesced_shared_tile.cu | everywhere | the sum of thread (tx, ty) is that of tile row ty and tile column tx, but it is stored at row0 + tx, col0 + ty: threadIdx.x and .y exchange their roles at the store, so each 32 x 32 tile of C is transposed in its place | "C = A @ B.T", C is (m, n) row by row; all inputs except m = n = 1 (single elements on tile diagonals are right); edge tiles that are not square also hold sums of rows or columns past the end (zeros) and so wrong values; shows on a GPU
// C = A @ B^T, step 2: tiles of A and B in shared memory, loaded in whole lines.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 32;
constexpr int LARGEST_SIZE = 1 << 30;  // beyond this the index of a tile's last row could leave the int range

__global__ void __launch_bounds__(BLOCK * BLOCK) shared_tile_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_n) {
    // BEGIN TODO 1: tiles of A and B through shared memory, and one element of C (about 19 lines)
    // The lanes of a warp read one column of b_tile: a row of 33 words puts the 32 of them in 32 banks.
    __shared__ float a_tile[BLOCK][BLOCK];
    __shared__ float b_tile[BLOCK][BLOCK + 1];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row0 = blockIdx.x / tiles_n * BLOCK;
    const int col0 = blockIdx.x % tiles_n * BLOCK;
    const long long a_row = row0 + ty, b_row = col0 + ty;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += BLOCK) {
        const bool in_k = k0 + tx < k;
        a_tile[ty][tx] = in_k && a_row < m ? __bfloat162float(a[a_row * k + k0 + tx]) : 0.0f;
        b_tile[ty][tx] = in_k && b_row < n ? __bfloat162float(b[b_row * k + k0 + tx]) : 0.0f;
        __syncthreads();
        for (int i = 0; i < BLOCK; ++i) sum += a_tile[ty][i] * b_tile[tx][i];
        __syncthreads();
    }
    const long long row = row0 + tx, col = col0 + ty;
    if (row < m && col < n) c[row * n + col] = __float2bfloat16(sum);
    // END TODO 1
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1 || m > LARGEST_SIZE || n > LARGEST_SIZE || k > LARGEST_SIZE) {
        return cudaErrorInvalidValue;
    }
    const long long tiles_m = (m - 1) / BLOCK + 1, tiles_n = (n - 1) / BLOCK + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    // BEGIN TODO 2: one block for each tile (about 2 lines)
    shared_tile_kernel<<<static_cast<unsigned>(tiles_m * tiles_n), dim3(BLOCK, BLOCK), 0, stream>>>(
        a, b, c, m, n, k, static_cast<int>(tiles_n));
    // END TODO 2
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
