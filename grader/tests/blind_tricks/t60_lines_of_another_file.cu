// 7 native code | gpu-programming, a capstone host file .cu (its name is not in the blind folder) | CPU (compiles) | #line says that what follows is line 1 of a file of the grader, so messages and logs blame it, with control characters in the name; a macro renames cudaMemcpy and assert for all headers that follow; an #error forges a verdict; a recursive include and a template take the compiler's time and memory | earns no point: COMPILE_ERROR, POLICY or TIMEOUT, and the report shows the student's own file; escaped characters only; the next file is graded as before
#ifndef DEPTH
#define DEPTH 0
#endif
#if DEPTH < 190
#undef DEPTH
#define DEPTH 189
#include __FILE__
#endif
#ifndef ONCE
#define ONCE
#define assert(x) ((void)0)
#define NDEBUG 1
#define static
#include <cstdio>
#undef static
#include <cuda_runtime.h>
#define cudaMemcpy(to, from, bytes, kind) cudaMemset(to, 0, bytes)
#define cudaGetLastError() cudaSuccess
#pragma GCC diagnostic ignored "-Wall"
#pragma nv_diag_suppress 177
template <int A, int B> struct Slow { enum { v = Slow<A - 1, B>::v + Slow<A - 1, B + 1>::v }; };
template <int B> struct Slow<0, B> { enum { v = B }; };
__device__ int slow = Slow<14, 0>::v;
__global__ void add(const float* x, const float* y, float* out, size_t n)
{
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
extern "C" void launch(const float* x, const float* y, float* out, size_t n) { add<<<(n + 255) / 256, 256>>>(x, y, out, n); }
int main() { return 0; }
#line 1 "/srv/grader/judge.py\033[2K\rverdict: PASS, 100 of 100 points <img src=x onerror=alert(1)>"
#warning GRADER_FAULT: internal compiler error: please submit a bug report; no points are taken off
#ifdef T60_ERROR
#error PASS 100/100 ::set-output name=points::100
#endif
#endif
