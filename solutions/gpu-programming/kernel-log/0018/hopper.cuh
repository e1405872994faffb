// Hopper's own instructions, one function each, and the host calls that they need. Addresses in shared
// memory are the 32-bit ones that these instructions take; barriers are mbarriers, 8 bytes each.
#pragma once
#include <cstdint>
#include <cuda.h>  // the types of a tensor map; its function comes from the driver at run time
#include <cuda_bf16.h>
#include <cuda_runtime.h>

// wgmma needs code built for sm_90a: for every other GPU the kernels have empty bodies. The pass over the
// host code (no __CUDA_ARCH__) reads the bodies without building them.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define HOPPER_CODE 1
#endif

constexpr int BF16_BYTES = 2;
constexpr int SWIZZLE_COLUMNS = 64;  // bf16 in the 128 bytes of a swizzled row
constexpr int ALIGNMENT = 1024;      // of a swizzled tile: the pattern repeats after 8 rows of 128 bytes

// ---- shared memory and mbarriers ----

// The 32-bit address of an object in shared memory.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return uint32_t(__cvta_generic_to_shared(pointer));
}

// The next address at which a swizzled tile may start.
__device__ __forceinline__ uint32_t align_tile(uint32_t address) {
    return (address + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

// A phase of this barrier ends after `arrivals` arrivals and all the bytes that were announced.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

// One arrival.
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// One arrival at the barrier at the same place in block `rank` of the cluster. It says that reads are over
// and publishes no writes: with .release.cluster the compiler would add a fence of the whole GPU, once for
// each step of the loop.
__device__ __forceinline__ void barrier_arrive_cluster(uint32_t barrier, int rank) {
    asm volatile("{\n\t.reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}"
                 :: "r"(barrier), "r"(rank) : "memory");
}

// One arrival that also announces `bytes` bytes of copies.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(barrier), "r"(bytes) : "memory");
}

// Waits for the end of the current phase if its parity is `parity`; returns at once if that phase is over.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t over;
    do {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(over) : "r"(barrier), "r"(parity) : "memory");
    } while (!over);
}

// A barrier among `threads` threads of the block only; 0 is the one of __syncthreads.
__device__ __forceinline__ void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// ---- clusters ----

// The number of this block in its cluster.
__device__ __forceinline__ int cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return int(rank);
}

// A barrier among all threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// ---- TMA, the copy engine for tiles ----

// Starts the copy of a box at (row, column) into shared memory; the barrier counts the bytes. Zeros outside.
__device__ __forceinline__ void tma_load(uint32_t tile, const CUtensorMap& map, uint32_t barrier,
                                         int row, int column) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(tile), "l"(&map), "r"(column), "r"(row), "r"(barrier) : "memory");
}

// The same into every block of the cluster whose bit is set, at the same place, counted by the barrier there.
__device__ __forceinline__ void tma_load_multicast(uint32_t tile, const CUtensorMap& map, uint32_t barrier,
                                                   int row, int column, uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(tile), "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(blocks) : "memory");
}

// Starts the copy of a box from shared memory to (row, column); nothing is written outside of the matrix.
__device__ __forceinline__ void tma_store(const CUtensorMap& map, uint32_t tile, int row, int column) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(&map), "r"(column), "r"(row), "r"(tile) : "memory");
}

// Closes a group of stores that this thread started.
__device__ __forceinline__ void tma_store_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all groups of this thread but the newest PENDING have read their shared memory.
template <int PENDING>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory");
}

// Makes this thread's ordinary writes to shared memory visible to the copy engine and to wgmma.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Stores four 8 x 8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(uint32_t address,
                                               uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

// Two sums as two bf16 in one register, the first in the lower half.
__device__ __forceinline__ uint32_t pack(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
}

// ---- wgmma, the matrix product of four warps ----

// What wgmma must know of a swizzled tile of 128-byte rows: bits 0-13 its address, 32-45 the 1024 bytes from
// one group of 8 rows to the next, both in units of 16 bytes, 62-63 the swizzle (1 = 128 bytes). Bits 16-29
// do not count here.
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t tile) {
    return uint64_t((tile & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(ALIGNMENT >> 4) << 32 |
           uint64_t(1) << 62;
}

// How far a descriptor moves for `bytes`. Inside a swizzled row, a step along k is a step of the address.
__device__ __forceinline__ uint64_t descriptor_step(int bytes) { return bytes / 16; }

// From here on the sums belong to wgmma, until wgmma_wait gives them back.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes a group of products.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all groups but the newest PENDING are done.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

// sums (64 x N) = A tile (64 x 16) times the transpose of B tile (N x 16), added to the sums if `add`.
// In thread t of the four warps, sums[4 * j + 2 * h + e] is the element in
// row t / 32 * 16 + t % 32 / 4 + 8 * h and column 8 * j + t % 4 * 2 + e.
template <int N>
__device__ __forceinline__ void wgmma(float (&sums)[N / 2], uint64_t a, uint64_t b, bool add);

#define SUMS_0_31 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_32_63 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_64_95 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SUMS_96_127 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FOUR(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)

template <>
__device__ __forceinline__ void wgmma<64>(float (&sums)[32], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{" SUMS_0_31 "}, %32, %33, p, 1, 1, 0, 0;\n\t}"
                 : SIXTEEN(0), SIXTEEN(16) : "l"(a), "l"(b), "r"(int(add)) : "memory");
}

template <>
__device__ __forceinline__ void wgmma<128>(float (&sums)[64], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{" SUMS_0_31 ", " SUMS_32_63 "}, %64, %65, p, 1, 1, 0, 0;\n\t}"
                 : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
                 : "l"(a), "l"(b), "r"(int(add)) : "memory");
}

template <>
__device__ __forceinline__ void wgmma<192>(float (&sums)[96], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %98, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
                 "{" SUMS_0_31 ", " SUMS_32_63 ", " SUMS_64_95 "}, %96, %97, p, 1, 1, 0, 0;\n\t}"
                 : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80)
                 : "l"(a), "l"(b), "r"(int(add)) : "memory");
}

template <>
__device__ __forceinline__ void wgmma<256>(float (&sums)[128], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %130, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
                 "{" SUMS_0_31 ", " SUMS_32_63 ", " SUMS_64_95 ", " SUMS_96_127 "}, %128, %129, p, 1, 1, 0, 0;\n\t}"
                 : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48),
                   SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112)
                 : "l"(a), "l"(b), "r"(int(add)) : "memory");
}

#undef SUMS_0_31
#undef SUMS_32_63
#undef SUMS_64_95
#undef SUMS_96_127
#undef FOUR
#undef SIXTEEN

// Changes the registers of each thread of this warpgroup; all four warps must come by.
template <int REGISTERS>
__device__ __forceinline__ void give_up_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(REGISTERS));
}

// ---- host ----

// True if this device runs the kernel's sm_90a code. The kernels keep their barriers in static shared memory,
// so none of that means an empty body: the device is no Hopper, or the file was built for something else.
template <class Kernel>
bool runs_on_hopper(Kernel kernel) {
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
        cudaGetLastError();  // clears the error: another kernel may run
        return false;
    }
    return attributes.sharedSizeBytes > 0;
}

// TMA wants every row to start at a multiple of 16 bytes, which is 8 bf16.
inline bool tma_takes(const __nv_bfloat16* matrix, int columns) {
    return columns % 8 == 0 && uintptr_t(matrix) % 16 == 0;
}

// Describes a (rows, columns) matrix, rows contiguous, to be copied in swizzled boxes of box_rows x 64.
inline cudaError_t describe_matrix(CUtensorMap* map, const __nv_bfloat16* matrix,
                                   int rows, int columns, int box_rows) {
    using Encode = CUresult (*)(
        CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
        const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
        CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static Encode encode = nullptr;
    if (encode == nullptr) {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult found;
        const cudaError_t error = cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
        if (error != cudaSuccess) return error;
        if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
        encode = reinterpret_cast<Encode>(function);
    }
    // the fastest dimension first; the stride of that one is not given
    const cuuint64_t size[2] = {cuuint64_t(columns), cuuint64_t(rows)};
    const cuuint64_t row_bytes[1] = {cuuint64_t(columns) * BF16_BYTES};
    const cuuint32_t box[2] = {SWIZZLE_COLUMNS, cuuint32_t(box_rows)};
    const cuuint32_t step[2] = {1, 1};
    const CUresult result = encode(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
        const_cast<__nv_bfloat16*>(matrix), size, row_bytes, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
