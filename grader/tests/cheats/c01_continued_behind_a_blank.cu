// EXPECT POLICY from reduce_sum/code: C1 CUB sums; its header is named by a directive cut in two by a backslash with a blank behind it

#include <cuda_runtime.h>
#inc\ 
lude <cub/block/block_reduce.cuh>

__global__ void sum_kernel(const float* x, float* out, long long n) {
    using Reduce = cub::BlockReduce<float, 256>;
    __shared__ typename Reduce::TempStorage scratch;
    float mine = 0.0f;
    for (long long i = threadIdx.x; i < n; i += 256) mine += x[i];
    const float total = Reduce(scratch).Sum(mine);
    if (threadIdx.x == 0) *out = total;
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t stream) {
    sum_kernel<<<1, 256, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
