// gpu-programming/cuda-kernels/matmul/01_naive.cu | error | the elements of A and B, which are __nv_bfloat16, are converted with __half2float (of cuda_fp16.h, for __half): there is no conversion from __nv_bfloat16 to __half, so nvcc does not compile the file; __bfloat162float is meant | "C = A @ B.T in bf16"; compile error, all inputs
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 16;
constexpr int LARGEST_SIZE = 1 << 30;

__global__ void naive_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                             int m, int n, int k, int tiles_n) {
    const int tile_row = blockIdx.x / tiles_n;
    const int tile_col = blockIdx.x - tile_row * tiles_n;
    const long long row = 1LL * tile_row * BLOCK + threadIdx.x / BLOCK;
    const long long col = 1LL * tile_col * BLOCK + threadIdx.x % BLOCK;
    if (row >= m || col >= n) return;
    const __nv_bfloat16* a_row = a + row * k;
    const __nv_bfloat16* b_row = b + col * k;
    float acc = 0.f;
    for (int i = 0; i < k; i++) acc = fmaf(__half2float(a_row[i]), __half2float(b_row[i]), acc);
    c[row * n + col] = __float2bfloat16_rn(acc);
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1 || m > LARGEST_SIZE || n > LARGEST_SIZE || k > LARGEST_SIZE) {
        return cudaErrorInvalidValue;
    }
    const long long tiles_m = (m - 1) / BLOCK + 1, tiles_n = (n - 1) / BLOCK + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;
    naive_kernel<<<(int)(tiles_m * tiles_n), BLOCK * BLOCK, 0, stream>>>(a, b, c, m, n, k, (int)tiles_n);
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
