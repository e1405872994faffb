# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | leading() (host, used for a, b and out) describes a matrix in the manner of BLAS by one leading dimension and a flag: where stride(1) is not 1 it takes stride(0) to be 1 without looking. Wrong for every matrix with neither stride 1, as every second column of a wider one (a, b or out; a spread out is written at wrong places, also between its columns); right for plain, padded and transposed ones. Both strides of each matrix should be passed to the kernel and used in at().
"""C = A B in the manner of BLAS: each matrix is a base, a leading dimension, and whether it lies transposed."""

import torch
import triton
import triton.language as tl

SHAPES = [
    (128, 256, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
    (32, 32, 32, 3, 4),
]
CANDIDATES = [
    triton.Config({"TM": tm, "TN": tn, "TK": tk}, num_stages=stages, num_warps=warps)
    for tm, tn, tk, stages, warps in SHAPES
]


def trim(configs, named_args, **kwargs):
    """Tiles that the result fills; for fp32, which has no tensor cores, none above 64."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a"].dtype == torch.float32:
        limit = min(limit, 64)
    fit = [c for c in configs if c.kwargs["TM"] <= limit and c.kwargs["TN"] <= limit]
    return fit or configs[-1:]


@triton.jit
def at(base, i, j, ld, TRANSPOSED: tl.constexpr):
    """Addresses of the elements (i, j); i is a column of numbers and j a row of numbers."""
    if TRANSPOSED:
        offset = i + j * ld
    else:
        offset = i * ld + j
    return base + offset


@triton.autotune(configs=CANDIDATES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": trim})
@triton.jit
def gemm(
    a, b, c, bias, M, N, K, lda, ldb, ldc,
    A_T: tl.constexpr, B_T: tl.constexpr, C_T: tl.constexpr, EPILOGUE: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """Axis 0 of the grid counts tiles of rows, axis 1 tiles of columns, of which it has at most 65535."""
    m = tl.program_id(0) * TM + tl.arange(0, TM)
    m_ok = m < M
    rows = m.to(tl.int64)[:, None]
    for tile in range(tl.program_id(1), tl.cdiv(N, TN), tl.num_programs(1)):
        n = tile * TN + tl.arange(0, TN)
        n_ok = n < N
        cols = n.to(tl.int64)[None, :]
        acc = tl.zeros((TM, TN), tl.float32)
        for k in range(0, K, TK):
            ks = k + tl.arange(0, TK)
            k_ok = ks < K
            x = tl.load(at(a, rows, ks[None, :], lda, A_T), mask=m_ok[:, None] & k_ok[None, :], other=0.0)
            y = tl.load(at(b, ks[:, None], cols, ldb, B_T), mask=k_ok[:, None] & n_ok[None, :], other=0.0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
        if EPILOGUE:
            shift = tl.load(bias + n, mask=n_ok, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + shift[None, :], 0.0)
        tl.store(at(c, rows, cols, ldc, C_T), acc.to(c.dtype.element_ty), mask=m_ok[:, None] & n_ok[None, :])


def leading(x):
    """The leading dimension of a matrix, and whether it lies transposed in memory."""
    if x.stride(1) == 1:
        return x.stride(0), False
    return x.stride(1), True


def run_gemm(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    lda, a_t = leading(a)
    ldb, b_t = leading(b)
    ldc, c_t = leading(out)
    grid = lambda meta: (triton.cdiv(M, meta["TM"]), min(triton.cdiv(N, meta["TN"]), 65535))  # noqa: E731
    gemm[grid](a, b, out, bias, M, N, K, lda, ldb, ldc, A_T=a_t, B_T=b_t, C_T=c_t, EPILOGUE=epilogue)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, with fp32 sums."""
    return run_gemm(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), in the same kernel."""
    return run_gemm(a, b, bias, out, True)
