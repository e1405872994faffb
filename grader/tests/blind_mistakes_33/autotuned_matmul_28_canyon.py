# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) in `matmul_kernel` the number of tiles of a program is rounded down (`chunk = tiles // programs`): where there are more tiles than the 16 programs and their number is no multiple of 16, the last tiles of c are never written, in both functions (as 521 x 389); it should be `tl.cdiv(tiles, programs)`. (2) in `finish` the bias is loaded at `bias_ptr + lanes`, the column within the tile, and not at `bias_ptr + n + lanes`: every tile column but the first adds the bias of the first BLOCK_N columns; shows in matmul_bias_relu for N > BLOCK_N
"""Matrix product by a few long-lived programs, each with a run of neighbouring tiles."""

import torch
import triton
import triton.language as tl

# streaming multiprocessors of the laptop that this was tried on
PROGRAMS = 16


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
    _config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and the smallest for fp32."""
    size = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile; in a group of GROUP_M rows the row changes fastest."""
    across = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * across) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * across)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def sums(
    a_ptr, b_ptr, m, n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The fp32 sums of the tile whose first element is (m, n)."""
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        left = tl.load(
            a_ptr + rows * stride_am + ks[None, :] * stride_ak, mask=(rows < M) & (ks[None, :] < K), other=0.0
        )
        right = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols * stride_bn, mask=(ks[:, None] < K) & (cols < N), other=0.0
        )
        acc = tl.dot(left, right, acc, input_precision="ieee")
    return acc


@triton.jit
def finish(acc, bias_ptr, n, N, BLOCK_N: tl.constexpr):
    """Bias and ReLU, on fp32."""
    lanes = tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + lanes, mask=n + lanes < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    programs = tl.num_programs(0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    chunk = tiles // programs
    begin = tl.program_id(0) * chunk
    for tile in range(begin, min(begin + chunk, tiles)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, 4)
        acc = sums(
            a_ptr, b_ptr, m, n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
        )
        if BIAS_RELU:
            acc = finish(acc, bias_ptr, n, N, BLOCK_N)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
        tl.store(
            c_ptr + rows * stride_cm + cols * stride_cn,
            acc.to(c_ptr.dtype.element_ty),
            mask=(rows < M) & (cols < N),
        )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (min(tiles(meta), PROGRAMS),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
