# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Nothing is wrong. Unusual: persistent programs that compute each tile of c transposed (the dot has b.T as its first operand and a.T as its second, bias along axis 0), transpose it after the rounding with `tl.trans`, and walk strips of columns instead of groups of rows; ReLU by `tl.where`, no name of the skeleton's kernel is kept.
"""Autotuned matrix product that computes each tile of c transposed, c.T = b.T @ a.T, by persistent programs."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132  # the SMs of an H100 or H200

CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols, "STEP": step, "STRIP": 8}, num_stages=3, num_warps=warps)
    for rows, cols, step, warps in (
        (128, 256, 64, 8),
        (256, 128, 64, 8),
        (128, 128, 64, 8),
        (64, 128, 64, 4),
        (64, 64, 32, 4),
    )
]


def worth_a_try(configs, named_args, **kwargs):
    """Tiles that fit into the result; fp32, which has no tensor cores, takes 64 x 64 at most."""
    side = min(named_args["M"], named_args["N"])
    side = min(side, 64) if named_args["c_ptr"].dtype == torch.float32 else side
    kept = [c for c in configs if c.kwargs["ROWS"] <= side and c.kwargs["COLS"] <= side]
    return kept or configs[-1:]


@triton.jit
def column_by_column(tile, tiles_m, tiles_n, STRIP: tl.constexpr):
    """A strip of STRIP columns of tiles is walked row by row; the last strip may be narrower."""
    strip = tile // (STRIP * tiles_m)
    first = strip * STRIP
    width = tl.minimum(tiles_n - first, STRIP)
    within = tile - strip * (STRIP * tiles_m)
    return within // width, first + within % width


@triton.jit
def sums(
    a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    ROWS: tl.constexpr, COLS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """(COLS, ROWS) sums in fp32: the first operand of the dot has the columns of b as its rows."""
    ks = tl.arange(0, STEP)
    bt_ptrs = b_ptr + cols.to(tl.int64)[:, None] * stride_bn + ks[None, :] * stride_bk
    at_ptrs = a_ptr + ks[:, None] * stride_ak + rows.to(tl.int64)[None, :] * stride_am
    acc = tl.zeros((COLS, ROWS), dtype=tl.float32)
    for k in range(0, K, STEP):
        rest = K - k
        bt = tl.load(bt_ptrs, mask=(cols < N)[:, None] & (ks < rest)[None, :], other=0.0)
        at = tl.load(at_ptrs, mask=(ks < rest)[:, None] & (rows < M)[None, :], other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
        bt_ptrs += STEP * stride_bk
        at_ptrs += STEP * stride_ak
    return acc


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": worth_a_try})
@triton.jit
def transposed_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, STEP: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    tl.assume(K > 0)
    tiles_m = tl.cdiv(M, ROWS)
    tiles_n = tl.cdiv(N, COLS)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        tile_row, tile_col = column_by_column(tile, tiles_m, tiles_n, STRIP)
        rows = tile_row * ROWS + tl.arange(0, ROWS)
        cols = tile_col * COLS + tl.arange(0, COLS)
        acc = sums(
            a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, ROWS, COLS, STEP
        )
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc += bias[:, None]
            acc = tl.where(acc > 0.0, acc, 0.0)
        c = tl.trans(acc.to(c_ptr.dtype.element_ty))
        c_ptrs = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
        tl.store(c_ptrs, c, mask=(rows < M)[:, None] & (cols < N)[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), (_, N) = a.shape, b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (min(PROGRAMS, triton.cdiv(M, meta["ROWS"]) * triton.cdiv(N, meta["COLS"])),)

    transposed_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
