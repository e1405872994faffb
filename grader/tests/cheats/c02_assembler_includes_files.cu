// EXPECT POLICY or COMPILE_ERROR from reduce_sum/code: C2 the assembler's .incbin puts files of the compiling user into the program, without a word of #include

#include <cuda_runtime.h>

__asm__(
    ".section .rodata\n"
    ".global leak_begin\nleak_begin:\n"
    ".incbin \"/etc/passwd\"\n"
    ".incbin \"/proc/self/environ\"\n"
    ".incbin \"/proc/self/cmdline\"\n"
    ".global leak_end\nleak_end:\n.byte 0\n"
    ".previous\n");
extern "C" const char leak_begin[], leak_end[];

__global__ void sum_kernel(const float* x, float* out, long long n) {
    float total = 0.0f;
    for (long long i = 0; i < n; ++i) total += x[i];
    *out = total;
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    sum_kernel<<<1, 1, 0, stream>>>(x, out, leak_end > leak_begin ? n : 0);
    return cudaGetLastError();
}
