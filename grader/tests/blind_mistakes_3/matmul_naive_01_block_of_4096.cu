// gpu-programming/cuda-kernels/matmul/01_naive.cu | error | constant BLOCK and the launch in matmul: BLOCK is 64, and the block is BLOCK x BLOCK = 4096 threads; a GPU permits 1024, so every launch is refused (cudaErrorInvalidConfiguration). BLOCK may be at most 32, or each thread must own several elements.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 64;  // a block of BLOCK x BLOCK threads owns BLOCK x BLOCK elements of C
constexpr int LARGEST_SIZE = 1 << 30;  // beyond this the index of a tile's last row could leave the int range

__global__ void naive_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_n) {
    const long long tile = blockIdx.x;
    const long long row = tile / tiles_n * BLOCK + threadIdx.y;
    const long long col = tile % tiles_n * BLOCK + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        sum += __bfloat162float(a[row * k + i]) * __bfloat162float(b[col * k + i]);
    }
    c[row * n + col] = __float2bfloat16(sum);
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1 || m > LARGEST_SIZE || n > LARGEST_SIZE || k > LARGEST_SIZE) {
        return cudaErrorInvalidValue;
    }
    const long long tiles_m = (m - 1) / BLOCK + 1, tiles_n = (n - 1) / BLOCK + 1;
    // one grid dimension: the second one ends at 65535 blocks
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    const dim3 block(BLOCK, BLOCK);
    naive_kernel<<<static_cast<unsigned>(tiles_m * tiles_n), block, 0, stream>>>(a, b, c, m, n, k, static_cast<int>(tiles_n));
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
