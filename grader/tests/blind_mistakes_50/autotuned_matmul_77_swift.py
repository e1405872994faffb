# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Loop over the whole blocks of K without a mask of K, and a peeled step for what is left; order of the tiles by `tl.swizzle2d`; `tl.expand_dims` instead of `[:, None]`, other names of the tile sizes, ReLU by `tl.where`.
"""Matrix product, autotuned: whole blocks of K without a mask of K, then what is left of K; bias and ReLU fused."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config(
        {"HEIGHT": height, "WIDTH": width, "DEPTH": depth, "BAND": 1024 // height}, num_stages=stages, num_warps=warps
    )
    for height, width, depth, stages, warps in (
        (128, 256, 32, 4, 8),
        (256, 128, 32, 4, 8),
        (128, 128, 64, 3, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4),
        (64, 64, 32, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["HEIGHT"], c.kwargs["WIDTH"]) <= size] or configs[-1:]


@triton.jit
def addresses(base, down, stride_down, across, stride_across):
    return base + (tl.expand_dims(down, 1) * stride_down + tl.expand_dims(across, 0) * stride_across)


@triton.jit
def both(down, across):
    return tl.expand_dims(down, 1) & tl.expand_dims(across, 0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one HEIGHT x WIDTH tile of c."""
    tiles_m = tl.cdiv(M, HEIGHT)
    tiles_n = tl.cdiv(N, WIDTH)
    pid = tl.program_id(axis=0)
    # Bands of BAND rows of tiles, each walked column by column.
    i, j = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, BAND)
    rows = tl.arange(0, HEIGHT).to(tl.int64) + i * HEIGHT
    cols = tl.arange(0, WIDTH).to(tl.int64) + j * WIDTH
    ks = tl.arange(0, DEPTH)
    real_rows = rows < M
    real_cols = cols < N
    a_ptrs = addresses(a_ptr, rows, stride_am, ks, stride_ak)
    b_ptrs = addresses(b_ptr, ks, stride_bk, cols, stride_bn)

    whole = K // DEPTH
    acc = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for _ in range(whole):
        a = tl.load(a_ptrs, mask=tl.expand_dims(real_rows, 1), other=0.0)
        b = tl.load(b_ptrs, mask=tl.expand_dims(real_cols, 0), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += DEPTH * stride_ak
        b_ptrs += DEPTH * stride_bk
    rest = K - whole * DEPTH
    if rest > 0:
        a = tl.load(a_ptrs, mask=both(real_rows, ks < rest), other=0.0)
        b = tl.load(b_ptrs, mask=both(ks < rest, real_cols), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=real_cols, other=0.0).to(tl.float32)
        acc += tl.expand_dims(bias, 0)
        acc = tl.where(acc > 0.0, acc, 0.0)
    c_ptrs = addresses(c_ptr, rows, stride_cm, cols, stride_cn)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=both(real_rows, real_cols))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["HEIGHT"]) * triton.cdiv(N, meta["WIDTH"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
