// out = x + y, several float4 a thread: all loads first, then the additions and the stores.
//
// Eight 16-byte loads leave a thread before it needs the first answer, so it waits once for 128 bytes and not
// four times for 32. Nothing is read twice: __ldcs and __stcs mark the lines as the first to leave the L2.
// Cost: registers hold what is in flight (32 for the data), so fewer threads fit on an SM; 1024 of them still
// ask for 128 KB. A small vector makes few blocks: below about 2^19 elements some SMs stay idle.
//
// Prediction: eight LDG.E.EF.128 in a row, then four STG.E.EF.128; half the occupancy of 02 and more TB/s,
// 4.3 to 4.4 on an H200, which is torch.add. The gain over 02 is small: DRAM was already the limit.

#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int VECTORS = 4;  // of x, and as many of y, that a thread has in flight

__device__ float add(float a, float b) { return a + b; }

__device__ float4 add(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// x, y, out are (n,); block b owns elements b * TILE to (b + 1) * TILE - 1. V is float4, or float where a
// pointer is not at a multiple of 16 bytes.
template <class V>
__global__ void __launch_bounds__(THREADS) add_kernel(const float* x, const float* y, float* out,
                                                      long long n) {
    constexpr int TILE = THREADS * VECTORS * static_cast<int>(sizeof(V) / sizeof(float));
    const long long start = static_cast<long long>(blockIdx.x) * TILE;
    if (start + TILE <= n) {
        const V* x_tile = reinterpret_cast<const V*>(x + start) + threadIdx.x;
        const V* y_tile = reinterpret_cast<const V*>(y + start) + threadIdx.x;
        V* out_tile = reinterpret_cast<V*>(out + start) + threadIdx.x;
        V a[VECTORS], b[VECTORS];
        // THREADS apart, so that the 32 loads of a warp lie side by side.
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            a[k] = __ldcs(x_tile + k * THREADS);
            b[k] = __ldcs(y_tile + k * THREADS);
        }
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) __stcs(out_tile + k * THREADS, add(a[k], b[k]));
    } else {
        // The last block, where n does not divide. Scalars, but all loads first again: this block starts
        // last, and a loop that waits for each pair of loads would keep the whole GPU waiting.
        constexpr int ELEMENTS = TILE / THREADS;
        float a[ELEMENTS], b[ELEMENTS];
#pragma unroll
        for (int k = 0; k < ELEMENTS; ++k) {
            const long long i = start + k * THREADS + threadIdx.x;
            a[k] = i < n ? x[i] : 0.0f;
            b[k] = i < n ? y[i] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < ELEMENTS; ++k) {
            const long long i = start + k * THREADS + threadIdx.x;
            if (i < n) out[i] = a[k] + b[k];
        }
    }
}

template <class V>
cudaError_t launch(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    constexpr int TILE = THREADS * VECTORS * static_cast<int>(sizeof(V) / sizeof(float));
    const unsigned int blocks = static_cast<unsigned int>((n + TILE - 1) / TILE);
    add_kernel<V><<<blocks, THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}

// x, y, out: (n,) fp32 on the device, out may be x or y. Returns a cudaError_t; the work is queued on stream.
extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;  // a grid of no blocks is a launch error
    const uintptr_t address_bits = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y) |
                                   reinterpret_cast<uintptr_t>(out);
    const bool aligned = address_bits % sizeof(float4) == 0;
    return aligned ? launch<float4>(x, y, out, n, stream) : launch<float>(x, y, out, n, stream);
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_VECTOR_ADD(vector_add)
#endif
