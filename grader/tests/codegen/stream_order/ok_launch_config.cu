// ALLOWED: cudaLaunchKernelEx with a cooperative launch, and cudaLaunchCooperativeKernel
#include <cooperative_groups.h>
#include <cuda_runtime.h>

__device__ float partials[1024];

__global__ void sum(const float* x, float* out, long long n) {
    float mine = 0.0f;
    if (threadIdx.x == 0) {
        for (long long i = blockIdx.x; i < n; i += gridDim.x) mine += x[i];
        partials[blockIdx.x] = mine;
    }
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        float total = 0.0f;
        for (unsigned i = 0; i < gridDim.x; ++i) total += partials[i];
        *out = total;
    }
}

extern "C" int reduce_sum(const float* x, float* out, long long n, cudaStream_t queue) {
    if (n < 1000) {
        void* arguments[] = {&x, &out, &n};
        return cudaLaunchCooperativeKernel((const void*)sum, dim3(32), dim3(32), arguments, 0, queue);
    }
    cudaLaunchAttribute together{};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    cudaLaunchConfig_t how{};
    how.gridDim = 64;
    how.blockDim = 32;
    how.stream = queue;
    how.attrs = &together;
    how.numAttrs = 1;
    return cudaLaunchKernelEx(&how, sum, x, out, n);
}
