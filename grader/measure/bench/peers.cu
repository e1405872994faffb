// Peers of the bench that only C++ can call: a sum by CUB, and a product by each of cublasLt's heuristics.
//
// native.py compiles one part at a time, PART_SUM or PART_PRODUCT: a machine may lack what one of them
// includes. Each function returns 0, or the error of the library that it calls.

#ifdef PART_SUM
#include <cub/device/device_reduce.cuh>
#include <cuda_runtime.h>

// The workspace of a sum of n numbers.
extern "C" int cub_sum_bytes(long long n, size_t* bytes) {
    const float* x = nullptr;
    float* out = nullptr;
    return cub::DeviceReduce::Sum(nullptr, *bytes, x, out, n);
}

// x: (n,) fp32, out: one fp32, workspace: bytes as cub_sum_bytes says, all on the device.
extern "C" int cub_sum(const float* x, float* out, long long n, void* workspace, size_t bytes,
                       cudaStream_t stream) {
    return cub::DeviceReduce::Sum(workspace, bytes, x, out, n, stream);
}
#endif

#ifdef PART_PRODUCT
#include <cublasLt.h>
#include <cuda_runtime.h>

namespace {

constexpr int MOST = 64;

// One size of c = a @ b^T, and the algorithms that cublasLt expects to be fastest, best guess first.
struct Product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t call;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t found[MOST];
};

cublasStatus_t describe(Product* p, long long m, long long n, long long k) {
    // cublasLt is column-major, where a row-major matrix is its transpose: c^T = b @ a^T, b transposed.
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasStatus_t error = cublasLtCreate(&p->handle);
    if (!error) error = cublasLtMatmulDescCreate(&p->call, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!error) {
        error = cublasLtMatmulDescSetAttribute(p->call, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                               sizeof transposed);
    }
    if (!error) error = cublasLtMatrixLayoutCreate(&p->b, CUDA_R_16BF, k, n, k);
    if (!error) error = cublasLtMatrixLayoutCreate(&p->a, CUDA_R_16BF, k, m, k);
    if (!error) error = cublasLtMatrixLayoutCreate(&p->c, CUDA_R_16BF, n, m, n);
    return error;
}

cublasStatus_t find(Product* p, size_t workspace_bytes, int wanted, int* count) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t error = cublasLtMatmulPreferenceCreate(&preference);
    if (error) return error;
    error = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace_bytes, sizeof workspace_bytes);
    if (!error) {
        error = cublasLtMatmulAlgoGetHeuristic(p->handle, p->call, p->b, p->a, p->c, p->c, preference, wanted,
                                               p->found, count);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    return error;
}

}  // namespace

// A product that lives as long as the process, with as many of the `wanted` algorithms as there are.
extern "C" int product_open(long long m, long long n, long long k, size_t workspace_bytes, int wanted,
                            void** product, int* count) {
    if (wanted < 1 || wanted > MOST) return CUBLAS_STATUS_INVALID_VALUE;
    Product* p = new Product{};
    *product = p;
    const cublasStatus_t error = describe(p, m, n, k);
    return error ? error : find(p, workspace_bytes, wanted, count);
}

// a: (m, k), b: (n, k), c: (m, n), all bf16 on the device, rows contiguous; by algorithm number i.
extern "C" int product_run(void* product, int i, const void* a, const void* b, void* c, void* workspace,
                           size_t workspace_bytes, cudaStream_t stream) {
    const Product* p = static_cast<const Product*>(product);
    const float one = 1.0f, zero = 0.0f;  // with beta = 0, c is not read
    return cublasLtMatmul(p->handle, p->call, &one, b, p->b, a, p->a, &zero, c, p->c, c, p->c,
                          &p->found[i].algo, workspace, workspace_bytes, stream);
}
#endif
