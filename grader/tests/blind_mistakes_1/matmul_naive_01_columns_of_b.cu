// gpu-programming/cuda-kernels/matmul/01_naive.cu | everywhere | the inner loop reads b[i * n + col], as if B were (k, n) with rows of n, but B is (n, k): it has to be b[col * k + i], so C = A @ (the numbers of B taken as a (k, n) matrix) and not A @ B.T | "Matrices are stored row by row without gaps: A is (m, k), B is (n, k)", "C = A @ B.T"; all inputs with n > 1 and k > 1; shows on a GPU
// C = A @ B^T, step 1: one thread for each element of C.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 16;  // a block of 16 x 16 threads owns 16 x 16 elements of C
constexpr int LARGEST_SIZE = 1 << 30;  // beyond this the index of a tile's last row could leave the int range

__global__ void naive_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_n) {
    // BEGIN TODO 1: one element of C, its sum in fp32 (about 9 lines)
    const int row = blockIdx.x / tiles_n * BLOCK + threadIdx.y;
    const int col = blockIdx.x % tiles_n * BLOCK + threadIdx.x;
    if (row < m && col < n) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) {
            sum += __bfloat162float(a[static_cast<long long>(row) * k + i]) *
                   __bfloat162float(b[static_cast<long long>(i) * n + col]);
        }
        c[static_cast<long long>(row) * n + col] = __float2bfloat16(sum);
    }
    // END TODO 1
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1 || m > LARGEST_SIZE || n > LARGEST_SIZE || k > LARGEST_SIZE) {
        return cudaErrorInvalidValue;
    }
    const long long tiles_m = (m - 1) / BLOCK + 1, tiles_n = (n - 1) / BLOCK + 1;
    // one grid dimension: the second one ends at 65535 blocks
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    // BEGIN TODO 2: one block for each tile (about 2 lines)
    const unsigned blocks = static_cast<unsigned>(tiles_m * tiles_n);
    naive_kernel<<<blocks, dim3(BLOCK, BLOCK), 0, stream>>>(a, b, c, m, n, k, static_cast<int>(tiles_n));
    // END TODO 2
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
