# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | matmul_bias_relu with an `out` that lies column by column (out.stride(0) < out.stride(1), as a transposed out): _launch then computes out.T = b.T @ a.T, but the kernel still adds the bias along its own columns (`bias_ptr + cols`), which are now the rows of the result: element (i, j) gets bias[i] instead of bias[j], and for M > N bias is read out of bounds. matmul, and any other out, is right. Should load the bias by rows (axis 0 of the tile) when the operands were exchanged
"""Matrix product that writes a column-major result as the transposed product, so that stores stay coalesced."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate: tile sizes, pipeline depth, warps."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    fits = lambda config: max(config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]) <= size  # noqa: E731
    return [config for config in configs if fits(config)] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    full = GROUP_M * tiles_n
    first = tile // full * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    number = tile % full
    return (first + number % height) * BLOCK_M, (number // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    has_row = (rows < M)[:, None]
    has_col = (cols < N)[None, :]
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    step = tl.cast(BLOCK_K, tl.int64)

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        has_k = ks < K - k
        a = tl.load(a_ptrs, mask=has_row & has_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=has_k[:, None] & has_col, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=has_row & has_col)


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    x, y, z = a, b, out
    if out.stride(0) < out.stride(1):
        # Neighbours in memory are neighbours in a column: compute the transpose.
        x, y, z = b.T, a.T, out.T
    (M, K), N = x.shape, y.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        x, y, z, bias, M, N, K,
        x.stride(0), x.stride(1), y.stride(0), y.stride(1), z.stride(0), z.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for one dtype and any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
