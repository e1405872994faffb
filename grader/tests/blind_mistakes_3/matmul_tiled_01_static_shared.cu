// gpu-programming/cuda-kernels/matmul/02_coalesced_shared_tile.cu | error | shared_tile_kernel: two tiles of fp32 with two stages, 2 * 2 * 32 * (STEP + 1) * 4 = 66048 bytes of __shared__ memory with a fixed size for STEP = 128; at most 48 KB are permitted, so the kernel cannot be launched (or ptxas refuses it). STEP must be 32 or 64, or the tiles bf16
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 32;
constexpr int STEP = 128;  // of k, for each stage of the two
constexpr int LARGEST_SIZE = 1 << 30;  // beyond this the index of a tile's last row could leave the int range

__global__ void __launch_bounds__(BLOCK * BLOCK) shared_tile_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_n) {
    __shared__ float a_tile[2][BLOCK][STEP + 1];
    __shared__ float b_tile[2][BLOCK][STEP + 1];
    const long long first_row = static_cast<long long>(blockIdx.x / tiles_n) * BLOCK;
    const long long first_col = static_cast<long long>(blockIdx.x % tiles_n) * BLOCK;
    const int x = threadIdx.x, y = threadIdx.y;
    const int steps = (k - 1) / STEP + 1;
    auto fetch = [&](int stage, int step) {
        for (int j = x; j < STEP; j += BLOCK) {
            const long long at = static_cast<long long>(step) * STEP + j;
            const long long row = first_row + y, col = first_col + y;
            a_tile[stage][y][j] = row < m && at < k ? __bfloat162float(a[row * k + at]) : 0.0f;
            b_tile[stage][y][j] = col < n && at < k ? __bfloat162float(b[col * k + at]) : 0.0f;
        }
    };
    float sum = 0.0f;
    fetch(0, 0);
    for (int step = 0; step < steps; ++step) {
        __syncthreads();
        if (step + 1 < steps) fetch((step + 1) % 2, step + 1);
        #pragma unroll
        for (int j = 0; j < STEP; ++j) sum += a_tile[step % 2][y][j] * b_tile[step % 2][x][j];
    }
    const long long row = first_row + y, col = first_col + x;
    if (row < m && col < n) c[row * n + col] = __float2bfloat16(sum);
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1 || m > LARGEST_SIZE || n > LARGEST_SIZE || k > LARGEST_SIZE) {
        return cudaErrorInvalidValue;
    }
    const long long tiles_m = (m - 1) / BLOCK + 1, tiles_n = (n - 1) / BLOCK + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    shared_tile_kernel<<<static_cast<unsigned>(tiles_m * tiles_n), dim3(BLOCK, BLOCK), 0, stream>>>(
        a, b, c, m, n, k, static_cast<int>(tiles_n));
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
