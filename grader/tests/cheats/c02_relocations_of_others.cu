// EXPECT POLICY from vector_add/code: C2 the file's own relocations have the address of dlsym, and with it that of any function

#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

extern "C" __attribute__((visibility("hidden"))) const std::uint64_t _DYNAMIC[];
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[];

struct Symbol { std::uint32_t name; unsigned char info, other; std::uint16_t section; std::uint64_t value, size; };
struct Relocation { std::uint64_t place, info, more; };

static bool same(const char* a, const char* b) {
    while (*a && *a == *b) ++a, ++b;
    return *a == *b;
}

// The address that the loader has put in place of a symbol which another part of this library wanted.
static std::uint64_t slot(const char* name) {
    const std::uint64_t base = reinterpret_cast<std::uint64_t>(__ehdr_start);
    std::uint64_t word[40] = {};
    for (const std::uint64_t* entry = _DYNAMIC; entry[0]; entry += 2) {
        if (entry[0] < 40) word[entry[0]] = entry[1];
    }
    for (int index : {5, 6, 7, 23}) {  // texts, symbols, relocations, those of calls; some loaders add the base
        if (word[index] && word[index] < base) word[index] += base;
    }
    const std::uint64_t tables[2][2] = {{word[23], word[2]}, {word[7], word[8]}};
    for (const auto& table : tables) {
        const Relocation* one = reinterpret_cast<const Relocation*>(table[0]);
        for (std::uint64_t i = 0; i < table[1] / sizeof(Relocation); ++i) {
            const Symbol& symbol = reinterpret_cast<const Symbol*>(word[6])[one[i].info >> 32];
            const std::uint32_t kind = one[i].info & 0xffffffff;
            if (kind != 6 && kind != 7) continue;  // GLOB_DAT, JUMP_SLOT
            if (same(reinterpret_cast<const char*>(word[5]) + symbol.name, name)) {
                return *reinterpret_cast<const std::uint64_t*>(base + one[i].place);
            }
        }
    }
    return 0;
}

static std::uint64_t find(const char* name) {
    const std::uint64_t look_up = slot("dlsym");
    return look_up ? reinterpret_cast<std::uint64_t (*)(void*, const char*)>(look_up)(nullptr, name) : 0;
}

__global__ void add_vectors(const float* x, const float* y, float* out, long long n) {
    const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

extern "C" int vector_add(const float* x, const float* y, float* out, long long n, cudaStream_t stream) {
    if (n < 0) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    add_vectors<<<unsigned((n + THREADS - 1) / THREADS), THREADS, 0, stream>>>(x, y, out, n);
    const std::uint64_t wait = find("cuCtxSynchronize");
    if (wait) reinterpret_cast<int (*)()>(wait)();
    return cudaGetLastError();
}

#ifndef NO_PROGRAM
#include "../program.cuh"
PROGRAM_VECTOR_ADD(vector_add)
#endif
