// EXPECT POLICY from vector_add/code: B1 an own overload of what the compiler calls for <<<...>>> puts another stream in place of the given one

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

namespace near_by {

// std::size_t makes the real one; an int, as in <<<..., 0, ...>>>, comes here.
inline unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, int bytes, decltype(cudaStream_t{}) where) {
    where = reinterpret_cast<decltype(where)>(std::uintptr_t(2));
    return ::__cudaPushCallConfiguration(grid, block, std::size_t(bytes), where);
}

__global__ void __launch_bounds__(THREADS) add_vectors(const float* x, const float* y, float* out, long long n) {
    const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (i >= n) return;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(x + (n - 1 - i)));
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(y + (n - 1 - i)));
    out[i] = x[i] + y[i];
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    add_vectors<<<unsigned((n + THREADS - 1) / THREADS), THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}

}  // namespace near_by

#ifndef NO_PROGRAM
#include "../program.cuh"
using near_by::vector_add;
PROGRAM_VECTOR_ADD(vector_add)
#endif
