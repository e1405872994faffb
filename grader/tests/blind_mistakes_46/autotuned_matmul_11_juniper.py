# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `matmul_kernel` the tile is held transposed (columns of c down, rows across), so `acc = tl.maximum(acc + bias[None, :], 0.0)` adds the bias along the rows of c; it should be `bias[:, None]`. Shows in every case of `matmul_bias_relu` but 1 x 1; `matmul` is right.
"""Matrix product whose programs hold their tile of c transposed: c.T = b.T @ a.T."""

import torch
import triton
import triton.language as tl


def _square(side, block_k, stages, warps):
    """A square tile of the result."""
    return triton.Config({"SIDE": side, "BLOCK_K": block_k, "GROUP": 8}, num_stages=stages, num_warps=warps)


CONFIGS = [_square(128, 64, 4, 8), _square(128, 64, 3, 8), _square(128, 32, 4, 8), _square(64, 64, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result. fp32 has no tensor cores here and takes the small one."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if c.kwargs["SIDE"] <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, SIDE: tl.constexpr, GROUP: tl.constexpr):
    """Tile row and tile column, GROUP rows of tiles walked column by column."""
    tiles_m, tiles_n = tl.cdiv(M, SIDE), tl.cdiv(N, SIDE)
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    return first + within % height, within // height


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, FUSED: tl.constexpr,
    SIDE: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = place(tl.program_id(axis=0), M, N, SIDE, GROUP)
    row = tile_m * SIDE + tl.arange(0, SIDE)
    col = tile_n * SIDE + tl.arange(0, SIDE)
    ks = tl.arange(0, BLOCK_K)
    row_far, col_far = row.to(tl.int64), col.to(tl.int64)
    # The columns of c run down the tile, its rows run across.
    bt_ptrs = b_ptr + col_far[:, None] * stride_bn + ks[None, :] * stride_bk
    at_ptrs = a_ptr + ks[:, None] * stride_ak + row_far[None, :] * stride_am
    has_row, has_col = row < M, col < N

    acc = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        left = K - k
        bt = tl.load(bt_ptrs, mask=has_col[:, None] & (ks[None, :] < left), other=0.0)
        at = tl.load(at_ptrs, mask=(ks[:, None] < left) & has_row[None, :], other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
        bt_ptrs += BLOCK_K * stride_bk
        at_ptrs += BLOCK_K * stride_ak

    if FUSED:
        bias = tl.load(bias_ptr + col, mask=has_col, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + col_far[:, None] * stride_cn + row_far[None, :] * stride_cm
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=has_col[:, None] & has_row[None, :])


def _launch(a, b, bias, out, fused):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["SIDE"]) * triton.cdiv(N, meta["SIDE"]),)

    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), FUSED=fused)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides; without the epilogue a stands in for the bias."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias along the columns."""
    return _launch(a, b, bias, out, True)
