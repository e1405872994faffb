# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | in matmul_kernel the tile of b is loaded as (BLOCK_N, BLOCK_K), and `tl.reshape(right, (BLOCK_K, BLOCK_N))` only cuts the same order of elements into other rows instead of exchanging the axes, so every product has the wrong elements of b; both functions, every case but N = K = 1. It should be tl.trans(right)
"""Tiles of a product of matrices; every load goes through one helper."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, group=8):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [_config(m, n, 64, stages, 8) for m, n in ((128, 256), (256, 128)) for stages in (3, 4)]
CONFIGS += [_config(128, 128, 64, 3, 8), _config(64, 128, 64, 3, 4), _config(64, 64, 32, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    columns = tl.cdiv(N, BLOCK_N)
    start = tile // (GROUP_M * columns) * GROUP_M
    tall = tl.minimum(tl.cdiv(M, BLOCK_M) - start, GROUP_M)
    nth = tile - start * columns
    return (start + nth % tall) * BLOCK_M, (nth // tall) * BLOCK_N


@triton.jit
def spots(i, j, stride_i, stride_j):
    """Offsets of the elements (i, j) of a matrix."""
    return i.to(tl.int64)[:, None] * stride_i + j.to(tl.int64)[None, :] * stride_j


@triton.jit
def within(i, j, end_i, end_j):
    """Which of the elements (i, j) a matrix of end_i by end_j has."""
    return (i[:, None] < end_i) & (j[None, :] < end_j)


@triton.jit
def grab(ptr, i, j, stride_i, stride_j, end_i, end_j):
    """The elements (i, j) of a matrix, i downwards and j to the right, and 0 where it has none."""
    return tl.load(ptr + spots(i, j, stride_i, stride_j), mask=within(i, j, end_i, end_j), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        left = grab(a_ptr, rows, ks, stride_am, stride_ak, M, K)
        right = grab(b_ptr, cols, ks, stride_bn, stride_bk, N, K)
        acc = tl.dot(left, tl.reshape(right, (BLOCK_K, BLOCK_N)), acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc += bias.to(tl.float32)[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)
    tl.store(
        c_ptr + spots(rows, cols, stride_cm, stride_cn),
        acc.to(c_ptr.dtype.element_ty),
        mask=within(rows, cols, M, N),
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    strides = (*a.stride(), *b.stride(), *out.stride())
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; to `out` where one is given."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
