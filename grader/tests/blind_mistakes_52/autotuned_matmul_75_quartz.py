# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Persistent programs (two an SM, 24 without a GPU) walk over the tiles with a step of `tl.num_programs(0)`; strips of columns of tiles, not groups of rows; `triton.heuristics` gives EVEN_K, which leaves out the mask along K; the sums of a tile are a helper.
"""Matrix product by persistent programs: each walks over tiles; whole blocks along K need no mask there."""

import torch
import triton
import triton.language as tl

# Tile along M, N and K, stages of the pipeline, warps.
SHAPES = ((128, 128, 64, 3, 8), (128, 64, 64, 3, 4), (64, 128, 64, 3, 4), (64, 64, 32, 4, 4), (32, 32, 32, 3, 2))
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "STRIP": 4}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result fills; for fp32, without tensor cores, small ones."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    return [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STRIP: tl.constexpr):
    """Strips of STRIP columns of tiles are walked row by row; the last strip may be narrower."""
    high = tl.cdiv(M, BLOCK_M)
    strip = tile // (STRIP * high)
    left = strip * STRIP
    width = tl.minimum(tl.cdiv(N, BLOCK_N) - left, STRIP)
    inside = tile - left * high
    return inside // width * BLOCK_M, (left + inside % width) * BLOCK_N


@triton.jit
def product(
    a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """The fp32 sums of one tile."""
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak)
    b_ptrs = b_ptr + (cols.to(tl.int64)[None, :] * stride_bn + ks[:, None] * stride_bk)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs, mask=row_ok, other=0.0)
            b = tl.load(b_ptrs, mask=col_ok, other=0.0)
        else:
            a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < K - k), other=0.0)
            b = tl.load(b_ptrs, mask=col_ok & (ks[:, None] < K - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    return acc


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def walking_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STRIP: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, STRIP)
        rows = m + tl.arange(0, BLOCK_M)
        cols = n + tl.arange(0, BLOCK_N)
        acc = product(
            a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
            BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K,
        )  # fmt: skip
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + (rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _walkers(x):
    """Two programs an SM fit for most tiles."""
    return 2 * torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 24


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    most = _walkers(a)

    def grid(meta):
        return (min(most, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    walking_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
