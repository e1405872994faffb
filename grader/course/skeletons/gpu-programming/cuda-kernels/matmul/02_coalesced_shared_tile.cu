// C = A @ B^T, step 2: tiles of A and B in shared memory, loaded in whole lines.
//
// A block of 32 x 32 threads owns 32 x 32 elements of C. It fetches a 32 x 32 tile of A and one of B
// together, neighbouring lanes reading neighbouring elements, and every element fetched then serves 32
// threads.
//
// Cost: 8 KB of shared memory and two barriers for each 32 steps of k; still two shared loads for each
// multiply-add.
//
// Prediction: global load instructions down by 32 against step 1, full use of each sector; shared memory
// (MIO) is now the limit, with no bank conflicts because of the padding; 3 to 6 TFLOP/s, about 1 % of cuBLAS.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int BLOCK = 32;
constexpr int LARGEST_SIZE = 1 << 30;  // beyond this the index of a tile's last row could leave the int range

__global__ void __launch_bounds__(BLOCK * BLOCK) shared_tile_kernel(
    const __nv_bfloat16* a,  // (m, k), rows contiguous
    const __nv_bfloat16* b,  // (n, k), rows contiguous
    __nv_bfloat16* c,        // (m, n), rows contiguous
    int m, int n, int k, int tiles_n) {
    // BEGIN TODO 1: tiles of A and B through shared memory, and one element of C (about 19 lines)
    // The lanes of a warp read one column of b_tile: a row of 33 words puts the 32 of them in 32 banks.
    #error "TODO 1: tiles of A and B through shared memory, and one element of C"
    // END TODO 1
}

extern "C" int matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                      int m, int n, int k, cudaStream_t stream) {
    if (m < 1 || n < 1 || k < 1 || m > LARGEST_SIZE || n > LARGEST_SIZE || k > LARGEST_SIZE) {
        return cudaErrorInvalidValue;
    }
    const long long tiles_m = (m - 1) / BLOCK + 1, tiles_n = (n - 1) / BLOCK + 1;
    if (tiles_m * tiles_n > 0x7fffffff) return cudaErrorInvalidValue;

    // BEGIN TODO 2: one block for each tile (about 2 lines)
    #error "TODO 2: one block for each tile"
    // END TODO 2
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_MATMUL(matmul)
#endif
