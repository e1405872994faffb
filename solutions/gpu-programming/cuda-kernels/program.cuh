// Turns a kernel file into a program that checks its function and then times it.
//     nvcc 02_vectorised.cu -o add && ./add       sizes of its own; ./add 1000003 4096: these sizes
//     ./matmul 4096 512x1024x2048                 m = n = k = 4096, then m x n x k
// One line of JSON a size goes to stdout, what is wrong to stderr. Exit code: 0 right, 1 wrong, 2 no GPU.

// GIVEN: nothing to complete here; each kernel file includes it to become a program.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <deque>
#include <string>
#include <vector>

namespace program {

using bf16 = __nv_bfloat16;
using std::string;
using std::vector;

inline cudaStream_t stream;
inline cudaDeviceProp gpu;
inline double* errors;  // on the device: [0] the worst error, [1] the same as a multiple of what is allowed
inline bool all_right = true;

inline void must(int error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(static_cast<cudaError_t>(error)));
    std::exit(1);
}

__device__ inline long long my_index() { return 1LL * blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline long long n_threads() { return 1LL * gridDim.x * blockDim.x; }

// Normal numbers, or whole ones from -8 to 8, whose sums are exact in any order. Never 0.
template <class T>
__global__ void fill_kernel(T* x, long long n, unsigned long long seed, bool whole) {
    for (long long i = my_index(); i < n; i += n_threads()) {
        // Two products, each followed by a fold of the upper half onto the lower, mix seed and index well.
        unsigned long long bits = (seed << 40) + i + 1;
        for (int round = 0; round < 2; ++round) {
            bits *= 0xd6e8feb86659fd93ull;
            bits ^= bits >> 32;
        }
        const float u = (static_cast<float>(bits >> 44) + 1.0f) * 0x1p-20f;  // in (0, 1]
        const float v = static_cast<float>(bits & 0xfffff) * 0x1p-20f;       // in [0, 1)
        const float normal = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
        const float integer = static_cast<float>((bits >> 40 & 7) + 1) * (bits >> 63 ? -1.0f : 1.0f);
        x[i] = static_cast<T>(whole ? integer : normal == 0.0f ? 1.0f : normal);
    }
}

// The bits of doubles sort as the numbers do, as long as none is negative. NaN counts as infinitely wrong.
__device__ inline void raise(double* most, double value) {
    const long long bits = __double_as_longlong(isnan(value) ? INFINITY : value);
    if (bits > 0) atomicMax(reinterpret_cast<long long*>(most), bits);
}

// Nothing is allowed: double holds the sum so well that rounding it to fp32 gives the one right answer.
__global__ void check_add(const float* x, const float* y, const float* out, long long n, double* errors) {
    for (long long i = my_index(); i < n; i += n_threads()) {
        const float want = static_cast<float>(static_cast<double>(x[i]) + y[i]);
        const double error = fabs(static_cast<double>(out[i]) - want);
        raise(&errors[0], error);
        raise(&errors[1], error * 1e300);
    }
}

// sums[0] = sum of x, sums[1] = sum of its squares
__global__ void sum_in_double(const float* x, long long n, double* sums) {
    double sum = 0.0, squares = 0.0;
    for (long long i = my_index(); i < n; i += n_threads()) {
        sum += x[i];
        squares += static_cast<double>(x[i]) * x[i];
    }
    atomicAdd(&sums[0], sum);
    atomicAdd(&sums[1], squares);
}

// a is (m, k), b (n, k), c (m, n). The last row and each row that step divides are computed again, the others
// must be finite. The error is counted in sqrt(k), about the size of an element of c.
__global__ void check_matmul(const bf16* a, const bf16* b, const bf16* c, int m, int n, int k, int step,
                             bool whole, double* errors) {
    const long long col = my_index();
    const double scale = sqrt(static_cast<double>(k));
    for (long long row = blockIdx.y; row < m && col < n; row += gridDim.y) {
        const double got = static_cast<float>(c[row * n + col]);
        if (!isfinite(got)) raise(&errors[1], INFINITY);
        if (row % step != 0 && row != m - 1) continue;
        double want = 0.0;
        for (int i = 0; i < k; ++i) {
            const double factor = static_cast<float>(a[row * k + i]);
            want += factor * static_cast<float>(b[col * k + i]);
        }
        // A sum of whole numbers is exact, and its rounding to bf16 has one right answer. Otherwise: half a
        // unit in the last place of bf16, and what the fp32 sums of tensor cores lose.
        if (whole) want = static_cast<float>(static_cast<bf16>(static_cast<float>(want)));
        const double allowed = whole ? 1e-9 : fabs(want) * 0x1.02p-8 + 1e-3 * scale;
        raise(&errors[0], fabs(got - want) / scale);
        raise(&errors[1], fabs(got - want) / allowed);
    }
}

template <class T>
vector<T> read(const void* from, size_t count) {
    vector<T> copy(count);
    must(cudaMemcpyAsync(copy.data(), from, count * sizeof(T), cudaMemcpyDefault, stream), "reading back");
    must(cudaStreamSynchronize(stream), "the kernel");
    return copy;
}

// Device memory between two bands. All bytes start as 0xff, which is NaN as fp32 and as bf16: a result that
// nobody wrote shows, and so does a sum that reads past the end.
struct Buffer {
    static constexpr size_t BAND = 4096;
    char* base = nullptr;
    const size_t before, bytes;

    Buffer(size_t bytes, size_t shift) : before(BAND + shift), bytes(bytes) {
        must(cudaMalloc(reinterpret_cast<void**>(&base), before + bytes + BAND), "cudaMalloc");
        poison();
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { cudaFree(base); }
    template <class T>
    T* as() const { return reinterpret_cast<T*>(base + before); }
    void poison() const { must(cudaMemsetAsync(base, 0xff, before + bytes + BAND, stream), "cudaMemset"); }
    template <class T>
    void fill(unsigned long long seed, bool whole) const {
        fill_kernel<<<1024, 256, 0, stream>>>(as<T>(), bytes / sizeof(T), seed, whole);
        must(cudaGetLastError(), "fill_kernel");
    }
    bool bands_hold() const {
        vector<unsigned char> bands = read<unsigned char>(base, before);
        for (unsigned char byte : read<unsigned char>(base + before + bytes, BAND)) bands.push_back(byte);
        return std::count(bands.begin(), bands.end(), 0xff) == static_cast<long>(bands.size());
    }
};

using Set = std::deque<Buffer>;  // what one call works on: the inputs, then the output

struct Size {
    long long n, m = 1, k = 1;  // m and k are those of a matmul; the other kernels have n alone
};

// Around the edges of a float4, a warp, a block and a tile.
const vector<Size> ODD = {{0},   {1},   {2},    {3},    {4},    {5},     {31},    {33},
                          {127}, {255}, {1025}, {4095}, {8193}, {16385}, {65537}, {1000003}};

// Each problem says what its buffers hold and how it is called, checked and rated.
struct VectorAdd {
    int (*function)(const float*, const float*, float*, long long, cudaStream_t);
    using Element = float;
    static constexpr bool IS_VECTOR = true, IS_SUM = false;
    const vector<Size> odd = ODD, usual = {{1 << 24}, {1 << 26}, {1 << 28}};
    static vector<long long> lengths(Size s) { return {s.n, s.n, s.n}; }
    static double work(Size s) { return 12.0 * s.n; }
    int call(const Set& b, Size s) const {
        return function(b[0].as<float>(), b[1].as<float>(), b[2].as<float>(), s.n, stream);
    }
    static vector<double> check(const Set& b, Size s, bool) {
        const float *x = b[0].as<float>(), *y = b[1].as<float>(), *out = b[2].as<float>();
        check_add<<<1024, 256, 0, stream>>>(x, y, out, s.n, errors);
        return read<double>(errors, 2);
    }
};

struct Reduction {
    int (*function)(const float*, float*, long long, cudaStream_t);
    using Element = float;
    static constexpr bool IS_VECTOR = true, IS_SUM = true;
    const vector<Size> odd = ODD, usual = {{1 << 24}, {1 << 28}, {1 << 30}};
    static vector<long long> lengths(Size s) { return {s.n, 1}; }
    static double work(Size s) { return 4.0 * s.n; }
    int call(const Set& b, Size s) const { return function(b[0].as<float>(), b[1].as<float>(), s.n, stream); }
    // The error is counted in lengths of the vector, the square root of the sum of squares: a sum of random
    // numbers is about that large. Allowed is five times what a single running sum in fp32 loses.
    static vector<double> check(const Set& b, Size s, bool whole) {
        sum_in_double<<<1024, 256, 0, stream>>>(b[0].as<float>(), s.n, errors);
        const vector<double> sums = read<double>(errors, 2);
        const double length = std::max(1e-30, std::sqrt(sums[1]));
        const double error = std::fabs(read<float>(b[1].as<float>(), 1)[0] - sums[0]) / length;
        return {error, error / (whole ? 1e-30 : 1e-30 + 0x1p-23 * std::sqrt(static_cast<double>(s.n)))};
    }
};

struct Matmul {
    int (*function)(const bf16*, const bf16*, bf16*, int, int, int, cudaStream_t);
    using Element = bf16;
    static constexpr bool IS_VECTOR = false, IS_SUM = false;
    const vector<Size> odd = {{1, 1, 1},     {127, 33, 130}, {1, 127, 33},   {130, 1, 127},
                              {33, 130, 1}, {128, 128, 64}, {136, 257, 520}};
    const vector<Size> usual = {{1024, 1024, 1024}, {4096, 4096, 4096}, {8192, 8192, 8192}};
    static vector<long long> lengths(Size s) { return {s.m * s.k, s.n * s.k, s.m * s.n}; }
    static double work(Size s) { return 2.0 * s.m * s.n * s.k; }
    int call(const Set& b, Size s) const {
        return function(b[0].as<bf16>(), b[1].as<bf16>(), b[2].as<bf16>(), s.m, s.n, s.k, stream);
    }
    static vector<double> check(const Set& b, Size s, bool whole) {
        const bf16 *x = b[0].as<bf16>(), *y = b[1].as<bf16>(), *out = b[2].as<bf16>();
        const int step = static_cast<int>(work(s) / 4e9) | 1;  // odd: no row of a tile is always spared
        const dim3 grid((s.n + 127) / 128, std::min(s.m, 65535LL));
        check_matmul<<<grid, 128, 0, stream>>>(x, y, out, s.m, s.n, s.k, step, whole, errors);
        return read<double>(errors, 2);
    }
};

// Times one(i) and, in turn with it, a copy that moves as many bytes, read and written. Two medians in us.
template <class Call>
vector<double> measure(Call one, int n_sets, size_t copy_bytes) {
    const size_t half = copy_bytes / 2;
    const Buffer from(half * n_sets, 0), to(half * n_sets, 0);
    from.fill<float>(99, false);
    auto copy = [&](int i) {
        return cudaMemcpyAsync(to.base + half * i, from.base + half * i, half, cudaMemcpyDefault, stream);
    };
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "cudaEventCreate");
    must(cudaEventCreate(&end), "cudaEventCreate");
    int next = 0;
    auto block_us = [&](auto call, int calls) {
        float ms = 0.0f;
        must(cudaEventRecord(begin, stream), "cudaEventRecord");
        for (int i = 0; i < calls; ++i) must(call(next++ % n_sets), "a timed call");
        must(cudaEventRecord(end, stream), "cudaEventRecord");
        must(cudaEventSynchronize(end), "the timed kernel");
        must(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        return 1e3 * ms / calls;
    };
    // Every set once: where calls are slow, as under a tool, the rounds below do not reach all of them.
    block_us(one, n_sets);
    // Beside a block of 10 ms the late start of its first call is small. The clocks need a while to rise.
    const int calls = static_cast<int>(std::min(1000.0, 1.0 + 1e4 / block_us(one, 1)));
    for (double us = 0.0; us < 2e5;) us += calls * block_us(one, calls);
    vector<double> ours, copies;
    for (int round = 0; round < 25; ++round) {
        if (round % 2 == 0) ours.push_back(block_us(one, calls));
        copies.push_back(half > 0 ? block_us(copy, calls) : 0.0);
        if (round % 2 == 1) ours.push_back(block_us(one, calls));
    }
    std::sort(ours.begin(), ours.end());
    std::sort(copies.begin(), copies.end());
    return {ours[12], copies[12]};
}

inline string name(Size s, bool is_vector) {
    const string n = std::to_string(s.n);
    return is_vector ? n : "[" + std::to_string(s.m) + ", " + n + ", " + std::to_string(s.k) + "]";
}

// Buffer i starts shift * (i + 1) mod 4 elements past an aligned address.
template <class Problem>
void allocate(Set& set, Size s, int shift) {
    constexpr size_t WIDTH = sizeof(typename Problem::Element);
    for (long long n : Problem::lengths(s)) set.emplace_back(n * WIDTH, shift * (set.size() + 1) % 4 * WIDTH);
}

template <class Problem>
void prepare(const Set& set, int seed, bool whole) {
    using T = typename Problem::Element;
    for (size_t i = 0; i + 1 < set.size(); ++i) set[i].template fill<T>(4 * seed + i, whole);
    set.back().poison();
}

template <class Problem>
double check(const Set& set, Size s, bool whole) {
    must(cudaMemsetAsync(errors, 0, 2 * sizeof(double), stream), "cudaMemset");
    const vector<double> found = Problem::check(set, s, whole);
    must(cudaGetLastError(), "the check");
    const bool bands_hold = set.back().bands_hold();
    if (found[1] <= 1.0 && bands_hold) return found[0];
    all_right = false;
    const string size = name(s, Problem::IS_VECTOR);
    std::fprintf(stderr, "wrong: size %s, %s numbers, worst error %.3g%s\n", size.c_str(),
                 whole ? "whole" : "normal", found[0], bands_hold ? "" : ", and written beside the output");
    return std::isnan(found[0]) ? HUGE_VAL : found[0];
}

template <class Problem>
void call_and_check(const Problem& problem, const Set& set, Size s, int seed, bool whole) {
    prepare<Problem>(set, seed, whole);
    must(problem.call(set, s), "the function returned");
    check<Problem>(set, s, whole);
}

template <class Problem>
double check_and_time(const Problem& problem, const string& kernel, Size s) {
    const string size = name(s, Problem::IS_VECTOR);
    const double work = Problem::work(s);
    double bytes = 0.0;
    for (double n : Problem::lengths(s)) bytes += n * sizeof(typename Problem::Element);
    // So many copies of the problem that no call finds its data in the L2, unless it is a very small one.
    const int n_sets = static_cast<int>(std::min(64.0, 1.0 + std::max(256e6, 4.0 * gpu.l2CacheSize) / bytes));
    size_t free_bytes = 0, total_bytes = 0;
    must(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    if (2.0 * n_sets * bytes > 0.9 * free_bytes) {
        std::fprintf(stderr, "left out for want of memory: size %s\n", size.c_str());
        return 0.0;
    }
    std::deque<Set> sets(n_sets);
    for (Set& set : sets) allocate<Problem>(set, s, 0);

    call_and_check(problem, sets[0], s, 1, true);
    vector<unsigned int> bits;
    for (int i = 0; i < 10 && Problem::IS_SUM; ++i) {
        call_and_check(problem, sets[0], s, 2, false);
        bits.push_back(read<unsigned int>(sets[0].back().template as<float>(), 1)[0]);
    }
    for (int i = 0; i < n_sets; ++i) prepare<Problem>(sets[i], 3 + i, false);
    auto one = [&](int i) { return problem.call(sets[i], s); };
    const vector<double> us = measure(one, n_sets, Problem::IS_VECTOR ? static_cast<size_t>(work) : 0);
    // The outputs that were timed are the ones that are checked.
    double worst = 0.0;
    for (const Set& set : sets) worst = std::max(worst, check<Problem>(set, s, false));

    const char* unit = Problem::IS_VECTOR ? "TB/s" : "TFLOP/s";
    std::printf("{\"kernel\": \"%s\", \"size\": %s, \"median_us\": %.2f, \"rate\": %.4g, \"unit\": \"%s\", ",
                kernel.c_str(), size.c_str(), us[0], work / us[0] * 1e-6, unit);
    if (us[1] > 0.0) std::printf("\"copy_us\": %.2f, \"copy_rate\": %.4g, ", us[1], work / us[1] * 1e-6);
    if (Problem::IS_SUM) {
        const bool same = std::count(bits.begin(), bits.end(), bits[0]) == static_cast<long>(bits.size());
        std::printf("\"same_each_run\": %s, ", same ? "true" : "false");
    }
    char error[32] = "null";  // JSON has no infinity
    if (std::isfinite(worst)) std::snprintf(error, sizeof error, "%.3g", worst);
    const char* right = all_right ? "true" : "false";
    std::printf("\"right\": %s, \"worst_error\": %s, \"gpu\": \"%s\"}\n", right, error, gpu.name);
    std::fflush(stdout);
    return us[0];
}

template <class Problem>
int run(const Problem& problem, const string& function, string file, int argc, char** argv) {
    vector<Size> sizes;
    for (int i = 1; i < argc; ++i) {
        Size s{0, 0, 0};
        if (std::sscanf(argv[i], "%lldx%lldx%lld", &s.m, &s.n, &s.k) == 1) s.n = s.k = s.m;
        if (std::min({s.m, s.n, s.k}) < 1) must(cudaErrorInvalidValue, argv[i]);
        sizes.push_back(s);
    }
    int n_gpus = 0;
    const cudaError_t error = cudaGetDeviceCount(&n_gpus);
    if (error != cudaSuccess || n_gpus == 0) {
        std::fprintf(stderr, "No GPU, so nothing was run: %s\n", cudaGetErrorString(error));
        return 2;
    }
    must(cudaGetDeviceProperties(&gpu, 0), "cudaGetDeviceProperties");
    // Waits for no other stream: a kernel that was launched without its stream argument comes too late.
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    must(cudaMalloc(reinterpret_cast<void**>(&errors), 2 * sizeof(double)), "cudaMalloc");

    for (const Size s : problem.odd) {
        for (int shift = 0; shift < (Problem::IS_VECTOR ? 4 : 1); ++shift) {
            Set set;
            allocate<Problem>(set, s, shift);
            call_and_check(problem, set, s, 1, true);
            call_and_check(problem, set, s, 2, false);
        }
    }
    file = file.substr(file.find_last_of("/\\") + 1);
    const string kernel = function + "/" + file.substr(0, file.rfind('.'));
    const bool odd_right = all_right;
    bool wrong = !all_right;
    double slowest_us = 0.0;
    for (const Size s : sizes.empty() ? problem.usual : sizes) {
        // Past a tenth of a second for one call the larger sizes take minutes and teach no more.
        if (sizes.empty() && slowest_us > 1e5) break;
        all_right = odd_right;
        slowest_us = std::max(slowest_us, check_and_time(problem, kernel, s));
        wrong = wrong || !all_right;
    }
    return wrong ? 1 : 0;
}

}  // namespace program

#define PROGRAM_MAIN(Problem, function) \
    int main(int argc, char** argv) { \
        program::Problem problem{function}; \
        return program::run(problem, #function, __FILE__, argc, argv); \
    }
#define PROGRAM_VECTOR_ADD(function) PROGRAM_MAIN(VectorAdd, function)
#define PROGRAM_REDUCTION(function) PROGRAM_MAIN(Reduction, function)
#define PROGRAM_MATMUL(function) PROGRAM_MAIN(Matmul, function)
