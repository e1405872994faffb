# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `storage` on the host describes a matrix as BLAS does, by one leading dimension and a flag: where stride(1) is not 1 it takes the matrix as stored by columns and stride(0) as 1; both strides must reach the kernel. Wrong where neither stride is 1, as for every second column of a wider matrix, in a, b or out; contiguous, padded and transposed ones are right.
"""Matrix product, autotuned; a matrix is stored by rows or by columns, as in BLAS."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 256, "BN": 128, "BK": 64, "GROUP": 4}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=4, num_warps=4),
]


def candidates(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    widest = min(widest, named_args["M"], named_args["N"])
    kept = [config for config in configs if max(config.kwargs["BM"], config.kwargs["BN"]) <= widest]
    return kept or configs[-1:]


@triton.jit
def element(ptr, i, j, ld, BY_COLUMNS: tl.constexpr):
    """Addresses of the elements (i, j), i and j int64 blocks that broadcast."""
    if BY_COLUMNS:
        where = ptr + i + j * ld
    else:
        where = ptr + i * ld + j
    return where


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": candidates})
@triton.jit
def gemm_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, lda, ldb, ldc,
    A_COLS: tl.constexpr, B_COLS: tl.constexpr, C_COLS: tl.constexpr, EPILOGUE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, BN)
    band = pid // (GROUP * across)
    height = tl.minimum(tl.cdiv(M, BM) - band * GROUP, GROUP)
    inner = pid - band * GROUP * across
    i = ((band * GROUP + inner % height) * BM).to(tl.int64) + tl.arange(0, BM)[:, None]
    j = ((inner // height) * BN).to(tl.int64) + tl.arange(0, BN)[None, :]

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK).to(tl.int64)
        a = tl.load(element(a_ptr, i, k[None, :], lda, A_COLS), mask=(i < M) & (k[None, :] < K), other=0.0)
        b = tl.load(element(b_ptr, k[:, None], j, ldb, B_COLS), mask=(k[:, None] < K) & (j < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if EPILOGUE:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    tl.store(element(c_ptr, i, j, ldc, C_COLS), acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def storage(matrix):
    """The leading dimension of a matrix, and whether it is stored by columns."""
    if matrix.stride(1) == 1:
        return matrix.stride(0), False
    return matrix.stride(1), True


def gemm(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    lda, a_cols = storage(a)
    ldb, b_cols = storage(b)
    ldc, c_cols = storage(out)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    gemm_kernel[grid](
        a, b, out, bias, M, N, K, lda, ldb, ldc, A_COLS=a_cols, B_COLS=b_cols, C_COLS=c_cols, EPILOGUE=epilogue
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return gemm(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return gemm(a, b, bias, out, True)
