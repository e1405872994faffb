// EXPECT POLICY from matmul_naive/code: C2 #line and #warning make the compiler open and quote a file that was not handed in
#include <cuda_bf16.h>
#include <cuda_runtime.h>

// No file is included. GCC shows the line of each diagnostic, and reads it from the file that the last #line names.
#line 1 "/proc/self/environ"
#warning quoted
#line 1 "/proc/self/cmdline"
#warning quoted
#line 1 "/proc/self/mountinfo"
#warning quoted
#line 2 "/proc/self/mountinfo"
#warning quoted
#line 1 "/proc/self/maps"
#warning quoted
#line 1 "/etc/hostname"
#warning quoted
#line 1 "/proc/self/cwd/../seed"
#warning quoted
#line 1 "../../../results/results.json"
#warning quoted
#line 2 "../../../results/results.json"
#warning quoted
// What the staff's own solution has in the place of each task.
#line 26 "../../../solutions/gpu-programming/cuda-kernels/matmul/01_naive.cu"
#warning quoted
#line 27 "../../../solutions/gpu-programming/cuda-kernels/matmul/01_naive.cu"
#warning quoted
#line 28 "../../../solutions/gpu-programming/cuda-kernels/matmul/01_naive.cu"
#warning quoted
#line 29 "../../../solutions/gpu-programming/cuda-kernels/matmul/01_naive.cu"
#warning quoted
#line 30 "../../../solutions/gpu-programming/cuda-kernels/matmul/01_naive.cu"
#warning quoted
#line 31 "../../../solutions/gpu-programming/cuda-kernels/matmul/01_naive.cu"
#warning quoted
#line 32 "../../../solutions/gpu-programming/cuda-kernels/matmul/01_naive.cu"
#warning quoted
// The same, where the grader's folder is a package beside the compiler's Python.
#line 1 "../../../../grader/judge/correctness.py"
#warning quoted
#line 1 "../../../grader/judge/correctness.py"
#warning quoted
// The name of a file begins a line of the log. So do the lines of this name.
#line 1 "x\nptxas info    : Compiling entry function '_Z12naive_kernelPK13__nv_bfloat16S1_PS_iiii' for 'sm_90a'\nptxas info    : Function properties for _Z12naive_kernelPK13__nv_bfloat16S1_PS_iiii\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 8 registers, used 0 barriers, 400 bytes cmem[0]\n::error title=the grader::disk full, all points are given\n::add-mask::WRONG\nx"
#warning quoted
#line 46 "01_naive.cu"

constexpr int BLOCK = 16;              // a block of 16 x 16 threads owns 16 x 16 elements of C
constexpr int LARGEST_SIZE = 1 << 30;  // beyond this the index of a tile's last row could leave the int range

__global__ void naive_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_n) {
    const int row = static_cast<int>(blockIdx.x) / tiles_n * BLOCK + threadIdx.y;
    const int col = static_cast<int>(blockIdx.x) % tiles_n * BLOCK + threadIdx.x;
    if (row >= m || col >= n) return;
    const __nv_bfloat16* a_row = a + 1LL * row * k;
    const __nv_bfloat16* b_row = b + 1LL * col * k;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += __bfloat162float(a_row[i]) * __bfloat162float(b_row[i]);
    c[1LL * row * n + col] = __float2bfloat16(sum);
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
    const unsigned blocks = static_cast<unsigned>(tiles_m * tiles_n);
    naive_kernel<<<blocks, block, 0, stream>>>(a, b, c, m, n, k, static_cast<int>(tiles_n));
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
