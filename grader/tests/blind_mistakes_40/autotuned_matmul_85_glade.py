# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `product_kernel`, branch `if FLIPPED`: `tl.load(bias_ptr + rows, mask=rows < N, other=0.0)` has the mask of the other axis; it should be `rows < M`, since M of the flipped launch is the number of columns of the result. Shows in matmul_bias_relu only with an `out` whose row stride is less than its column stride (transposed): a result wider than high gets no bias in the columns from its height on; one higher than wide may read the bias past its end.
"""Matrix product that always stores along rows: for a transposed result it computes out.T = b.T @ a.T."""

import torch
import triton
import triton.language as tl

SHAPES = (  # rows, columns, depth, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (128, 64, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"TM": tm, "TN": tn, "TK": tk}, num_stages=stages, num_warps=warps)
    for tm, tn, tk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """No tile larger than the result; in fp32 no large tile at all."""
    small = min(named_args["M"], named_args["N"])
    if named_args["x_ptr"].dtype == torch.float32:
        small = min(small, 64)
    return [c for c in configs if max(c.kwargs["TM"], c.kwargs["TN"]) <= small] or configs[-1:]


@triton.jit
def grouped(pid, down, across, GROUP: tl.constexpr):
    """Row and column of tile pid, counted in tiles: GROUP rows at a time, the row changing fastest."""
    size = GROUP * across
    top = pid // size * GROUP
    height = tl.minimum(down - top, GROUP)
    return top + pid % size % height, pid % size // height


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, M, N, K,
    stride_xm, stride_xk, stride_yk, stride_yn, stride_zm, stride_zn,
    FUSED: tl.constexpr, FLIPPED: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """z = x @ y for x (M, K) and y (K, N), with bias and ReLU where FUSED.

    FLIPPED: z is the transposed result, so the bias belongs to the rows of z and not to its columns.
    """
    i, j = grouped(tl.program_id(axis=0), tl.cdiv(M, TM), tl.cdiv(N, TN), 8)
    rows = i * TM + tl.arange(0, TM).to(tl.int64)
    cols = j * TN + tl.arange(0, TN).to(tl.int64)
    steps = tl.arange(0, TK)
    x_at = x_ptr + rows[:, None] * stride_xm + steps[None, :] * stride_xk
    y_at = y_ptr + steps[:, None] * stride_yk + cols[None, :] * stride_yn
    acc = tl.zeros((TM, TN), dtype=tl.float32)
    for done in range(0, K, TK):
        x = tl.load(x_at, mask=(rows[:, None] < M) & (steps[None, :] < K - done), other=0.0)
        y = tl.load(y_at, mask=(steps[:, None] < K - done) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        x_at += TK * stride_xk
        y_at += TK * stride_yk
    if FUSED:
        if FLIPPED:
            bias = tl.load(bias_ptr + rows, mask=rows < N, other=0.0)
            acc += bias.to(tl.float32)[:, None]
        else:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
            acc += bias.to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    z_at = z_ptr + rows[:, None] * stride_zm + cols[None, :] * stride_zn
    tl.store(z_at, acc.to(z_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _run(a, b, bias, out, fused):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    # Neighbours in a row of the stored matrix should be neighbours in memory.
    flipped = out.stride(0) < out.stride(1)
    x, y, z = (b.T, a.T, out.T) if flipped else (a, b, out)
    M, N = z.shape
    grid = lambda meta: (triton.cdiv(M, meta["TM"]) * triton.cdiv(N, meta["TN"]),)  # noqa: E731
    product_kernel[grid](
        x, y, z, bias, M, N, x.shape[1], *x.stride(), *y.stride(), *z.stride(),
        FUSED=fused, FLIPPED=flipped,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for matrices of one dtype and any strides."""
    return _run(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in the same kernel; bias is (N,)."""
    return _run(a, b, bias, out, fused=True)
