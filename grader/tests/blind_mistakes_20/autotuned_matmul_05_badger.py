# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | The heuristic EVEN_K of matmul_kernel tests K % BLOCK_K, but the loop takes two tiles a step and makes K // (2 * BLOCK_K) steps where EVEN_K: where K is an odd multiple of BLOCK_K (64, 192, ...) the last BLOCK_K products are dropped. The heuristic should test K % (2 * BLOCK_K).
"""Matrix product, two tiles along K in each step, autotuned."""

import torch
import triton
import triton.language as tl


def _config(bm, bn, stages, warps, group=8):
    tile = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": 64, "GROUP_M": group}
    return triton.Config(tile, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 2, 8),
    _config(256, 128, 2, 8, group=4),
    _config(128, 128, 2, 8),
    _config(64, 128, 2, 4),
    _config(64, 64, 2, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = tiles_n * GROUP_M
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def one_tile(acc, a_row, b_col, ks, K, stride_ak, stride_bk, row_ok, col_ok, EVEN_K: tl.constexpr):
    """acc plus the product of the tiles at ks."""
    a_at = a_row + ks[None, :] * stride_ak
    b_at = b_col + ks[:, None] * stride_bk
    if EVEN_K:
        a = tl.load(a_at, mask=row_ok, other=0.0)
        b = tl.load(b_at, mask=col_ok, other=0.0)
    else:
        a = tl.load(a_at, mask=row_ok & (ks[None, :] < K), other=0.0)
        b = tl.load(b_at, mask=col_ok & (ks[:, None] < K), other=0.0)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias). EVEN_K compiles a version whose loads have no mask along K."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    a_row = a_ptr + rows[:, None] * stride_am
    b_col = b_ptr + cols[None, :] * stride_bn
    ks = tl.arange(0, BLOCK_K).to(tl.int64)

    # Half as many steps, and the scheduler sees two independent pairs of loads in each.
    steps = K // (2 * BLOCK_K) if EVEN_K else tl.cdiv(K, 2 * BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, steps):
        acc = one_tile(acc, a_row, b_col, ks, K, stride_ak, stride_bk, row_ok, col_ok, EVEN_K)
        acc = one_tile(acc, a_row, b_col, ks + BLOCK_K, K, stride_ak, stride_bk, row_ok, col_ok, EVEN_K)
        ks += 2 * BLOCK_K

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias[None, :].to(tl.float32), 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_ok & col_ok,
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
