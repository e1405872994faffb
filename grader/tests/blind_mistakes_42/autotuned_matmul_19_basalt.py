# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Each program computes a tile of c.T = b.T @ a.T, (BLOCK_N, BLOCK_M), with b first in `tl.dot`, groups of columns of tiles in place of rows, the bias along the first axis, and stores it by exchanged axes.
"""Matrix product by way of its transpose: each program computes a tile of c.T = b.T @ a.T and stores it turned."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """A tile of c of block_m x block_n, held as block_n x block_m."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that are no larger than the result; 64 x 64 for fp32 and as a last resort."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and first column of a tile of c: groups of GROUP_N columns of tiles, walked row by row."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_N * tiles_m) * GROUP_N
    width = tl.minimum(tiles_n - first, GROUP_N)
    within = tile % (GROUP_N * tiles_m)
    return within // width * BLOCK_M, (first + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def transposed_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    """The tile has columns of c along its first axis, rows of c along its second."""
    tl.assume(K > 0)
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[None, :]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
    ks = tl.arange(0, BLOCK_K)

    bt_ptrs = b_ptr + cols * stride_bn + ks[None, :] * stride_bk
    at_ptrs = a_ptr + ks[:, None] * stride_ak + rows * stride_am
    turned = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        bt = tl.load(bt_ptrs, mask=(cols < N) & (ks[None, :] < K - k), other=0.0)
        at = tl.load(at_ptrs, mask=(ks[:, None] < K - k) & (rows < M), other=0.0)
        turned = tl.dot(bt, at, turned, input_precision="ieee")
        bt_ptrs += BLOCK_K * stride_bk
        at_ptrs += BLOCK_K * stride_ak

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        turned = tl.maximum(turned + bias.to(tl.float32), 0.0)

    ct_ptrs = c_ptr + cols * stride_cn + rows * stride_cm
    tl.store(ct_ptrs, turned.to(c_ptr.dtype.element_ty), mask=(cols < N) & (rows < M))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    transposed_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
