# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | _launch allocates the result, where no `out` is given, as `torch.empty((N, M), ...).T` if a is not row-major (a.stride(1) != 1): the function then returns a tensor that is not contiguous, but the README asks for a new contiguous (M, N) matrix. Shows in both functions without `out` for a transposed a or one with a column step (and M, N > 1); the numbers are right in every case. It should always be torch.empty((M, N), ...)
"""Tiled matrix product with a choice of tiles, optionally ended by bias and ReLU."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, group_m=8, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group_m}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8, group_m=4),
    _config(128, 128, 64, 4, 4),
    _config(64, 128, 32, 4, 4),
    _config(32, 32, 32, 4, 2),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    first = tile // (GROUP_M * across) * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    within = tile - first * across
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def address(ptr, rows, cols, row_stride, col_stride):
    """Pointers to the block where these rows meet these columns."""
    return ptr + rows.to(tl.int64)[:, None] * row_stride + cols.to(tl.int64)[None, :] * col_stride


@triton.jit
def both(rows, M, cols, N):
    """The part of a block that lies inside an M x N matrix."""
    return (rows < M)[:, None] & (cols < N)[None, :]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    lane = tl.arange(0, BLOCK_K)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for step in range(tl.cdiv(K, BLOCK_K)):
        ks = step * BLOCK_K + lane
        a = tl.load(address(a_ptr, rows, ks, stride_am, stride_ak), mask=both(rows, M, ks, K), other=0.0)
        b = tl.load(address(b_ptr, ks, cols, stride_bk, stride_bn), mask=both(ks, K, cols, N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(address(c_ptr, rows, cols, stride_cm, stride_cn), c, mask=both(rows, M, cols, N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        if a.stride(1) == 1:
            out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        else:
            out = torch.empty((N, M), device=a.device, dtype=a.dtype).T
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for matrices of one dtype and any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias along the columns."""
    return _launch(a, b, bias, out, bias_relu=True)
