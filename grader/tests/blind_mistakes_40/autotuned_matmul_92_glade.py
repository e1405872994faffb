# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Heuristics leave out the masks where M, N or K are multiples of the tile, and the host computes from shapes and strides whether a matrix reaches beyond 2^31 elements: only then (constexpr FAR) rows and columns become int64, else int32 offsets suffice. Nothing is wrong.
"""Matrix product compiled for what its sizes allow: without masks where tiles fit, in int32 where it suffices."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, stages, warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]
FITS = {
    "WHOLE_M": lambda args: args["M"] % args["BLOCK_M"] == 0,
    "WHOLE_N": lambda args: args["N"] % args["BLOCK_N"] == 0,
    "WHOLE_K": lambda args: args["K"] % args["BLOCK_K"] == 0,
}


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def fetch(ptrs, outer, inner, WHOLE_OUTER: tl.constexpr, WHOLE_INNER: tl.constexpr):
    """A block, 0 where it is outside of the matrix; a mask that is true everywhere is left out."""
    if WHOLE_OUTER:
        if WHOLE_INNER:
            block = tl.load(ptrs)
        else:
            block = tl.load(ptrs, mask=inner, other=0.0)
    else:
        if WHOLE_INNER:
            block = tl.load(ptrs, mask=outer, other=0.0)
        else:
            block = tl.load(ptrs, mask=outer & inner, other=0.0)
    return block


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics(FITS)
@triton.jit
def fitted_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, FAR: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    WHOLE_M: tl.constexpr, WHOLE_N: tl.constexpr, WHOLE_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias). FAR: a matrix reaches beyond 2^31 elements."""
    pid = tl.program_id(axis=0)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = pid // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    rows = (first + pid % in_group % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid % in_group // height * BLOCK_N + tl.arange(0, BLOCK_N)
    if FAR:
        rows = rows.to(tl.int64)
        cols = cols.to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    a_ptrs = a_ptr + (rows[:, None] * stride_am + ks[None, :] * stride_ak)
    b_ptrs = b_ptr + (ks[:, None] * stride_bk + cols[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = fetch(a_ptrs, row_exists, ks[None, :] < left, WHOLE_M, WHOLE_K)
        b = fetch(b_ptrs, col_exists, ks[:, None] < left, WHOLE_N, WHOLE_K)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + (rows[:, None] * stride_cm + cols[None, :] * stride_cn)
    result = acc.to(c_ptr.dtype.element_ty)
    if WHOLE_M and WHOLE_N:
        tl.store(c_ptrs, result)
    else:
        tl.store(c_ptrs, result, mask=row_exists & col_exists)


def _last(matrix):
    """Number of the last element of a matrix, counted from its first one in memory."""
    return (matrix.shape[0] - 1) * matrix.stride(0) + (matrix.shape[1] - 1) * matrix.stride(1)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    far = max(_last(a), _last(b), _last(out)) >= 2**31
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    fitted_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu, FAR=far
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
