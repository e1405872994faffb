// EXPECT OUT_OF_BOUNDS/WRITE from vector_add, hint 1 on a GPU: the last float4 reaches past the end

#include <cuda_runtime.h>

__global__ void add_kernel(const float4* x, const float4* y, float4* out, long long n_vectors) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n_vectors) {
        const float4 a = x[i], b = y[i];
        out[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    const long long n_vectors = (n + 3) / 4;  // rounded up, and no thread looks at what is left over
    add_kernel<<<static_cast<unsigned>((n_vectors + 255) / 256), 256, 0, stream>>>(
        reinterpret_cast<const float4*>(x), reinterpret_cast<const float4*>(y), reinterpret_cast<float4*>(out),
        n_vectors);
    return cudaGetLastError();
}
