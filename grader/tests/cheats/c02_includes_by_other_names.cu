// EXPECT POLICY or COMPILE_ERROR from reduce_sum/code: C2 computed includes, a digraph and a directive cut in two name files to read

#include <cuda_runtime.h>

#if __has_include("../grader/screen/policy.py") || __has_include("../../grader/screen/policy.py")
#define GRADER_IS_NEAR 1
#else
#define GRADER_IS_NEAR 0
#endif

%:define SOLUTION "../solutions/gpu-programming/cuda-kernels/reduction/05_deterministic.cu"
%:if __has_include(SOLUTION)
%:include SOLUTION
%:endif

#define PLACE "/proc/self/environ"
#inc\
lude PLACE

__global__ void sum_kernel(const float* x, float* out, long long n) {
    float total = 0.0f;
    for (long long i = 0; i < n; ++i) total += x[i];
    *out = total;
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    sum_kernel<<<1, 1, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
