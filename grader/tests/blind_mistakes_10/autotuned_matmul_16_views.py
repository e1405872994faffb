# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | a wide result is computed as its transpose: the launch swaps the operands and passes the views b.t(), a.t() and out.t(), so the kernel only ever sees tall matrices; the bias then runs along the rows of the kernel's tile (SIDE 2) instead of its columns (SIDE 1).
"""Matrix product for tall results; wide ones are turned over first, by views."""

import torch
import triton
import triton.language as tl


def _tile(tall, wide, deep, num_stages, num_warps):
    return triton.Config({"TALL": tall, "WIDE": wide, "DEEP": deep}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _tile(256, 128, 64, 3, 8),
    _tile(128, 128, 64, 4, 8),
    _tile(128, 64, 64, 4, 4),
    _tile(64, 64, 32, 4, 4),
]
GROUP = tl.constexpr(8)


def fitting(configs, named_args, **kwargs):
    """Tall tiles, but not taller or wider than the result."""
    rows, cols = named_args["M"], named_args["N"]
    if named_args["x_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["TALL"] <= rows and c.kwargs["WIDE"] <= cols] or configs[-1:]


@triton.jit
def place(tile, M, N, TALL: tl.constexpr, WIDE: tl.constexpr):
    """First row and column of a tile; GROUP rows of tiles are walked together."""
    across = tl.cdiv(N, WIDE)
    first = tile // (GROUP * across) * GROUP
    height = tl.minimum(tl.cdiv(M, TALL) - first, GROUP)
    within = tile % (GROUP * across)
    return (first + within % height) * TALL, within // height * WIDE


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def tall_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, M, N, K, xm, xk, yk, yn, zm, zn,
    SIDE: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """z = x @ y; with a bias along the columns and ReLU where SIDE is 1, along the rows where it is 2."""
    m, n = place(tl.program_id(axis=0), M, N, TALL, WIDE)
    rows = (m + tl.arange(0, TALL)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, WIDE)).to(tl.int64)[None, :]
    ks = tl.arange(0, DEEP).to(tl.int64)
    x_ptrs = x_ptr + rows * xm + ks[None, :] * xk
    y_ptrs = y_ptr + ks[:, None] * yk + cols * yn
    acc = tl.zeros((TALL, WIDE), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, DEEP):
        x = tl.load(x_ptrs, mask=(rows < M) & (ks[None, :] < K - k), other=0.0)
        y = tl.load(y_ptrs, mask=(ks[:, None] < K - k) & (cols < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        x_ptrs += DEEP * xk
        y_ptrs += DEEP * yk
    if SIDE == 1:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    if SIDE == 2:
        bias = tl.load(bias_ptr + rows, mask=rows < M, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    tl.store(
        z_ptr + rows * zm + cols * zn, acc.to(z_ptr.dtype.element_ty), mask=(rows < M) & (cols < N)
    )


def _tall(x, y, z, bias, side):
    """Launch tall_kernel for z = x @ y."""
    (M, K), N = x.shape, y.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["TALL"]) * triton.cdiv(N, meta["WIDE"]),)  # noqa: E731
    tall_kernel[grid](x, y, z, bias, M, N, K, *x.stride(), *y.stride(), *z.stride(), SIDE=side)


def _product(a, b, bias, out):
    """Turn a wide result over: the transpose of a @ b is b.t() @ a.t()."""
    M, N = a.shape[0], b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    stand_in = a if bias is None else bias
    if N > M:
        _tall(b.t(), a.t(), out.t(), stand_in, 0 if bias is None else 2)
    else:
        _tall(a, b, out, stand_in, 0 if bias is None else 1)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _product(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _product(a, b, bias, out)
