// ALLOWED: attributes of a kernel are set, the grid follows the occupancy, a lambda launches
#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

extern __shared__ float tile[];

__global__ void rows(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k) {
    for (int row = blockIdx.x; row < m; row += gridDim.x) {
        for (int i = threadIdx.x; i < k; i += blockDim.x) tile[i] = __bfloat162float(a[1LL * row * k + i]);
        __syncthreads();
        for (int col = threadIdx.x; col < n; col += blockDim.x) {
            float sum = 0.f;
            for (int i = 0; i < k; ++i) sum += tile[i] * __bfloat162float(b[1LL * col * k + i]);
            c[1LL * row * n + col] = __float2bfloat16(sum);
        }
        __syncthreads();
    }
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k,
                      cudaStream_t stream) {
    const size_t bytes = sizeof(float) * std::max(k, 1);
    auto error = cudaFuncSetAttribute(rows, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
    if (error) return error;
    int per_sm = 0;
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, rows, 256, bytes);
    if (error) return error;
    auto launch = [&](int blocks) {
        rows<<<std::min<int>(blocks, 65535), dim3{256, 1, 1}, bytes, stream>>>(a, b, c, m, n, k);
    };
    launch(std::min(m, std::max(1, per_sm) * 132));
    return static_cast<int>(cudaGetLastError());
}
