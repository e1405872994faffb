// EXPECT COMPILE_ERROR from matmul_tiled/code: the tiles take 131 KB of static shared memory

#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 32;
constexpr int LARGEST_SIZE = 1 << 30;  // beyond this the index of a tile's last row could leave the int range

__global__ void __launch_bounds__(BLOCK * BLOCK) shared_tile_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_n) {
    // The lanes of a warp read one column of b_tile: a row of 33 words puts the 32 of them in 32 banks.
    __shared__ float a_tile[4 * BLOCK][4 * BLOCK + 1], b_tile[4 * BLOCK][4 * BLOCK + 1];

    const int tile_row = blockIdx.x / tiles_n * BLOCK, tile_col = blockIdx.x % tiles_n * BLOCK;
    const int ty = threadIdx.y, tx = threadIdx.x;  // [0, 32)

    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += BLOCK) {
        const bool k_inside = k0 + tx < k;
        const bool a_inside = k_inside && tile_row + ty < m, b_inside = k_inside && tile_col + ty < n;
        // zero outside: it adds nothing to the sum
        a_tile[ty][tx] = a_inside ? __bfloat162float(a[size_t(tile_row + ty) * k + k0 + tx]) : 0.0f;
        b_tile[ty][tx] = b_inside ? __bfloat162float(b[size_t(tile_col + ty) * k + k0 + tx]) : 0.0f;
        __syncthreads();

        for (int i = 0; i < BLOCK; ++i) sum += a_tile[ty][i] * b_tile[tx][i];
        __syncthreads();  // the next round overwrites the tiles
    }
    if (tile_row + ty < m && tile_col + tx < n) {
        c[size_t(tile_row + ty) * n + tile_col + tx] = __float2bfloat16_rn(sum);
    }
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1 || m > LARGEST_SIZE || n > LARGEST_SIZE || k > LARGEST_SIZE) {
        return cudaErrorInvalidValue;
    }
    const long long tiles_m = (m - 1) / BLOCK + 1, tiles_n = (n - 1) / BLOCK + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    const dim3 threads(BLOCK, BLOCK);
    shared_tile_kernel<<<int(tiles_m * tiles_n), threads, 0, stream>>>(a, b, c, m, n, k, int(tiles_n));
    return cudaGetLastError();
}
