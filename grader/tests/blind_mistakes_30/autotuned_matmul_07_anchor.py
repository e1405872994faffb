# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | _leading keeps one stride of each matrix, as BLAS does, and takes the other for 1: a, b or out with neither stride equal to 1 (every second column of a wider matrix) is read or written as if its columns lay side by side; wrong there in both functions and all dtypes, right for contiguous, padded and transposed ones. Should be: pass and use both strides
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    within = tile % (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def address(base, rows, cols, ld, TRANSPOSED: tl.constexpr):
    """Where the elements of a tile lie, for a matrix stored by rows or, TRANSPOSED, by columns."""
    if TRANSPOSED:
        offsets = rows[:, None] + cols[None, :] * ld
    else:
        offsets = rows[:, None] * ld + cols[None, :]
    return base + offsets


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, lda, ldb, ldc,
    TRANS_A: tl.constexpr, TRANS_B: tl.constexpr, TRANS_C: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(address(a_ptr, rows, ks, lda, TRANS_A), mask=row_ok & (ks < K)[None, :], other=0.0)
        b = tl.load(address(b_ptr, ks, cols, ldb, TRANS_B), mask=(ks < K)[:, None] & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(address(c_ptr, rows, cols, ldc, TRANS_C), acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _leading(x):
    """The distance of rows and False, or for a matrix stored by columns the distance of columns and True."""
    if x.stride(0) == 1:
        return x.stride(1), True
    return x.stride(0), False


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    lda, trans_a = _leading(a)
    ldb, trans_b = _leading(b)
    ldc, trans_c = _leading(out)
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, lda, ldb, ldc,
        TRANS_A=trans_a, TRANS_B=trans_b, TRANS_C=trans_c, BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
