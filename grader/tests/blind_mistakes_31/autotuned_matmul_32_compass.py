# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product by one kernel that sees either c = a b or its transpose, c' = b' a'.

Which of the two is chosen by the layout of the result: stores should run along its short stride.
"""

import torch
import triton
import triton.language as tl


def _config(rows, cols, depth, num_stages, num_warps, group=8):
    tile = {"BLOCK_P": rows, "BLOCK_Q": cols, "BLOCK_K": depth, "GROUP_P": group}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8, group=4),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["x_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["P"], named_args["Q"])
    return [c for c in configs if max(c.kwargs["BLOCK_P"], c.kwargs["BLOCK_Q"]) <= size] or configs[-1:]


@triton.jit
def place(tile, P, Q, BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr, GROUP_P: tl.constexpr):
    """First row and first column of one of the tiles of z."""
    tiles_q = tl.cdiv(Q, BLOCK_Q)
    group = tile // (tiles_q * GROUP_P)
    rest = tile - group * (tiles_q * GROUP_P)
    top = group * GROUP_P
    height = tl.minimum(tl.cdiv(P, BLOCK_P) - top, GROUP_P)
    col = rest // height
    row = top + rest - col * height
    return row * BLOCK_P, col * BLOCK_Q


@triton.autotune(configs=CONFIGS, key=["P", "Q", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, P, Q, K,
    stride_xp, stride_xk, stride_yk, stride_yq, stride_zp, stride_zq,
    BIAS_RELU: tl.constexpr, BIAS_BY_ROW: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_P: tl.constexpr,
):  # fmt: skip
    """z = x @ y, x (P, K) and y (K, Q), or relu(z + bias), one number for each row or for each column of z."""
    p, q = place(tl.program_id(axis=0), P, Q, BLOCK_P, BLOCK_Q, GROUP_P)
    ps = (p + tl.arange(0, BLOCK_P)).to(tl.int64)[:, None]
    qs = (q + tl.arange(0, BLOCK_Q)).to(tl.int64)[None, :]
    x_lines = x_ptr + ps * stride_xp
    y_lines = y_ptr + qs * stride_yq
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)

    acc = tl.zeros((BLOCK_P, BLOCK_Q), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        ks = step * BLOCK_K + lanes
        down = ks[:, None]
        along = ks[None, :]
        x = tl.load(x_lines + along * stride_xk, mask=(ps < P) & (along < K), other=0.0)
        y = tl.load(y_lines + down * stride_yk, mask=(down < K) & (qs < Q), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")

    if BIAS_RELU:
        if BIAS_BY_ROW:
            bias = tl.load(bias_ptr + ps, mask=ps < P, other=0.0)
        else:
            bias = tl.load(bias_ptr + qs, mask=qs < Q, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    z_ptrs = z_ptr + ps * stride_zp + qs * stride_zq
    tl.store(z_ptrs, acc.to(z_ptr.dtype.element_ty), mask=(ps < P) & (qs < Q))


def _run(x, y, z, bias, bias_relu, by_row):
    """z = x @ y by the kernel; x, y and z may be transposed views."""
    (P, K), Q = x.shape, y.shape[1]
    tiles = lambda meta: triton.cdiv(P, meta["BLOCK_P"]) * triton.cdiv(Q, meta["BLOCK_Q"])  # noqa: E731
    product_kernel[lambda meta: (tiles(meta),)](
        x, y, z, bias, P, Q, K,
        x.stride(0), x.stride(1), y.stride(0), y.stride(1), z.stride(0), z.stride(1),
        BIAS_RELU=bias_relu, BIAS_BY_ROW=by_row,
    )  # fmt: skip


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    if out.stride(0) < out.stride(1):
        _run(b.T, a.T, out.T, bias, bias_relu, by_row=True)
    else:
        _run(a, b, out, bias, bias_relu, by_row=False)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
