// out = x + y, one thread an element: the shortest kernel that is right.
//
// Cost: 12 bytes an element (two read, one written) and a single addition, so memory sets the time: 2^28
// elements are 3.2 GB, at least 671 us at 4.8 TB/s. A thread asks for 8 bytes and then waits. With 2048
// threads that is 16 KB on the way to each SM, and 4.8 TB/s with a latency near 0.7 us needs about 25 KB.
//
// Prediction: coalesced (4 sectors a request), 32-bit LDG, occupancy near 100 %, nearly all stalls "long
// scoreboard", and 3.3 to 3.9 TB/s on an H200: short of what the memory can do, for want of bytes in flight.

#include <cuda_runtime.h>

constexpr int THREADS = 256;

// x, y, out are (n,); thread i of the grid owns element i
__global__ void __launch_bounds__(THREADS) add_kernel(const float* x, const float* y, float* out,
                                                      long long n) {
    // Widened before the product: past 2^31 elements an int would wrap around.
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

// x, y, out: (n,) fp32 on the device, out may be x or y. Returns a cudaError_t; the work is queued on stream.
extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;  // a grid of no blocks is a launch error
    // At most 2^31 - 1 blocks: 2 TB of x, more than a GPU has.
    const long long blocks = (n + THREADS - 1) / THREADS;
    add_kernel<<<static_cast<unsigned int>(blocks), THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_VECTOR_ADD(vector_add)
#endif
