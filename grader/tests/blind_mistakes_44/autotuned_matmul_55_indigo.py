# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `transposed_kernel` acc is the tile of c^T (rows of acc are columns of c), but the bias is added by `acc + bias[None, :]`; it should be `bias[:, None]`. `matmul_bias_relu` is wrong in all cases but 1 x 1 (bias number n + i goes to row m + i of c); `matmul` is right.
"""Matrix product as its own transpose: each program computes a tile of (a @ b)^T = b^T @ a^T, autotuned."""

import torch
import triton
import triton.language as tl

# Square tiles: side, step along K, stages, warps.
CONFIGS = [
    triton.Config({"SIDE": side, "DEPTH": depth}, num_stages=stages, num_warps=warps)
    for side, depth, stages, warps in (
        (128, 64, 4, 8),
        (128, 64, 3, 4),
        (128, 32, 4, 8),
        (64, 64, 4, 4),
        (64, 32, 4, 4),
    )
]
BAND = 8


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["SIDE"] <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, SIDE: tl.constexpr, BAND: tl.constexpr):
    """First row and first column, in c, of a tile: BAND rows of tiles are walked column by column."""
    tall = tl.cdiv(M, SIDE)
    wide = tl.cdiv(N, SIDE)
    first = tile // (BAND * wide) * BAND
    height = tl.minimum(BAND, tall - first)
    within = tile % (BAND * wide)
    return (first + within % height) * SIDE, within // height * SIDE


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def transposed_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BAND: tl.constexpr, SIDE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """c^T = b^T @ a^T, with bias and ReLU where BIAS_RELU; no matrix is moved, only indices are exchanged."""
    m, n = place(tl.program_id(axis=0), M, N, SIDE, BAND)
    rm = (m + tl.arange(0, SIDE)).to(tl.int64)
    rn = (n + tl.arange(0, SIDE)).to(tl.int64)
    rk = tl.arange(0, DEPTH)
    # Rows of b^T are columns of b, and columns of a^T are rows of a.
    bt_ptrs = b_ptr + rn[:, None] * stride_bn + rk[None, :] * stride_bk
    at_ptrs = a_ptr + rk[:, None] * stride_ak + rm[None, :] * stride_am

    acc = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for k in range(0, K, DEPTH):
        left = K - k
        bt = tl.load(bt_ptrs, mask=(rn[:, None] < N) & (rk[None, :] < left), other=0.0)
        at = tl.load(at_ptrs, mask=(rk[:, None] < left) & (rm[None, :] < M), other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
        bt_ptrs += DEPTH * stride_bk
        at_ptrs += DEPTH * stride_ak

    if BIAS_RELU:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    ct_ptrs = c_ptr + rn[:, None] * stride_cn + rm[None, :] * stride_cm
    tl.store(ct_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rn[:, None] < N) & (rm[None, :] < M))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["SIDE"]) * triton.cdiv(N, meta["SIDE"]),)  # noqa: E731
    transposed_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, BAND=BAND,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
