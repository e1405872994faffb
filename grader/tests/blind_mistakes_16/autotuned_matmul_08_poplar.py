# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""C^T = B^T A^T. A column of C is a row of a tile here, and with it goes one number of the bias."""

import torch
import triton
import triton.language as tl


def _tile(p, q, r, stages, warps):
    return triton.Config({"P": p, "Q": q, "R": r, "BAND": 8}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _tile(256, 128, 64, 3, 8),
    _tile(128, 256, 64, 3, 8),
    _tile(128, 128, 64, 3, 8),
    _tile(128, 64, 64, 3, 4),
    _tile(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; only 64 x 64 for fp32."""
    if named_args["left_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["lefts"], named_args["rights"])
    return [c for c in configs if max(c.kwargs["P"], c.kwargs["Q"]) <= size] or configs[-1:]


@triton.jit
def place(tile, lefts, rights, P: tl.constexpr, Q: tl.constexpr, BAND: tl.constexpr):
    """The first row and column of a tile, in bands of BAND tiles."""
    across = tl.cdiv(rights, Q)
    top = tile // (BAND * across) * BAND
    height = tl.minimum(tl.cdiv(lefts, P) - top, BAND)
    i = tile % (BAND * across)
    return (top + i % height) * P, (i // height) * Q


@triton.autotune(
    configs=CONFIGS, key=["lefts", "rights", "depth"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def product_kernel(
    left_ptr, right_ptr, out_ptr, bias_ptr, lefts, rights, depth,
    left_row, left_col, right_row, right_col, out_row, out_col,
    WITH_BIAS: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """out (lefts, rights) = left (lefts, depth) @ right (depth, rights), plus bias (lefts,), and ReLU."""
    i0, j0 = place(tl.program_id(0), lefts, rights, P, Q, BAND)
    i = (i0 + tl.arange(0, P)).to(tl.int64)
    j = (j0 + tl.arange(0, Q)).to(tl.int64)
    r = tl.arange(0, R).to(tl.int64)

    total = tl.zeros((P, Q), dtype=tl.float32)
    done = 0
    while done < depth:
        rr = r + done
        x_mask = (i[:, None] < lefts) & (rr[None, :] < depth)
        y_mask = (rr[:, None] < depth) & (j[None, :] < rights)
        x = tl.load(left_ptr + i[:, None] * left_row + rr[None, :] * left_col, mask=x_mask, other=0.0)
        y = tl.load(right_ptr + rr[:, None] * right_row + j[None, :] * right_col, mask=y_mask, other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
        done += R

    if WITH_BIAS:
        bias = tl.load(bias_ptr + i, mask=i < lefts, other=0.0)
        total = tl.maximum(total + bias.to(tl.float32)[:, None], 0.0)
    inside = (i[:, None] < lefts) & (j[None, :] < rights)
    target = out_ptr + i[:, None] * out_row + j[None, :] * out_col
    tl.store(target, total.to(out_ptr.dtype.element_ty), mask=inside)


def _product(a, b, bias, out, with_bias):
    m, k = a.shape
    n = b.shape[1]
    if out is None:
        out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    bt, at, ot = b.T, a.T, out.T
    grid = lambda meta: (triton.cdiv(n, meta["P"]) * triton.cdiv(m, meta["Q"]),)  # noqa: E731
    product_kernel[grid](
        bt, at, ot, bias, n, m, k,
        bt.stride(0), bt.stride(1), at.stride(0), at.stride(1), ot.stride(0), ot.stride(1),
        WITH_BIAS=with_bias,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides."""
    return _product(a, b, b, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _product(a, b, bias, out, True)
