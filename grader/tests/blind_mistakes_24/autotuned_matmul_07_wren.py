# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In _launch a result with columns side by side is computed as the transposed problem, where the bias runs down the rows, but `BIAS_DOWN=target.stride(0) < target.stride(1)` tests the matrix already transposed and is never true, so matmul_bias_relu adds the bias along the wrong axis where `out` is column-major. It should test `out.stride(0) < out.stride(1)`.
"""Tiled matrix product that always stores along rows.

A result whose columns lie side by side in memory is the row-major result of the transposed problem:
c = a @ b is the same as c.T = b.T @ a.T. So the host exchanges the operands, and the kernel stores whole lines.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_tiles = tl.cdiv(N, BLOCK_N)
    m_tiles = tl.cdiv(M, BLOCK_M)
    group = tile // (n_tiles * GROUP_M)
    top = group * GROUP_M
    height = tl.minimum(m_tiles - top, GROUP_M)
    inside = tile % (n_tiles * GROUP_M)
    tile_m = top + inside % height
    tile_n = inside // height
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, bias_length,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BIAS_DOWN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias). The bias has a value for each row of c if BIAS_DOWN, else for each column."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_mask = rows[:, None] < M
    col_mask = cols[None, :] < N
    a_start = a_ptr + rows[:, None] * stride_am
    b_start = b_ptr + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(0, tl.cdiv(K, BLOCK_K)):
        ks = (block * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_start + ks[None, :] * stride_ak, mask=row_mask & (ks[None, :] < K), other=0.0)
        b = tl.load(b_start + ks[:, None] * stride_bk, mask=col_mask & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        if BIAS_DOWN:
            bias = tl.load(bias_ptr + rows, mask=rows < bias_length, other=0.0)
            acc += bias.to(tl.float32)[:, None]
        else:
            bias = tl.load(bias_ptr + cols, mask=cols < bias_length, other=0.0)
            acc += bias.to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)

    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_mask & col_mask,
    )


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    left, right, target = a, b, out
    if out.stride(0) < out.stride(1):
        left, right, target = b.T, a.T, out.T
    (M, K), N = left.shape, right.shape[1]
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        left, right, target, bias, M, N, K, bias.shape[0],
        *left.stride(), *right.stride(), *target.stride(),
        BIAS_RELU=bias_relu, BIAS_DOWN=target.stride(0) < target.stride(1),
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
