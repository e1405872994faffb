# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | `place`, a `@triton.jit` function, uses the global `GROUP_ROWS = 8`, a plain int; Triton's compiler permits only globals that are constexpr (`GROUP_ROWS = tl.constexpr(8)`, or an argument) and raises NameError "Cannot access global variable GROUP_ROWS". No call compiles on a GPU, though the interpreter runs it and is right.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

# So many rows of tiles form a group, the same for every config.
GROUP_ROWS = 8

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 256, "BN": 128, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=4, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_ROWS * tl.cdiv(N, BN)
    first = tile // in_group * GROUP_ROWS
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP_ROWS)
    within = tile % in_group
    return (first + within % height) * BM, within // height * BN


@triton.jit
def inside(rows, cols, height, width):
    """Which places of a block of rows and columns exist."""
    return (rows < height)[:, None] & (cols < width)[None, :]


@triton.jit
def at(base, rows, cols, stride_row, stride_col):
    """The addresses of a block of rows and columns."""
    return base + rows[:, None] * stride_row + cols[None, :] * stride_col


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BM x BN tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BM, BN)
    rows = (m + tl.arange(0, BM)).to(tl.int64)
    cols = (n + tl.arange(0, BN)).to(tl.int64)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        a = tl.load(at(a_ptr, rows, ks, stride_am, stride_ak), mask=inside(rows, ks, M, K), other=0.0)
        b = tl.load(at(b_ptr, ks, cols, stride_bk, stride_bn), mask=inside(ks, cols, K, N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        at(c_ptr, rows, cols, stride_cm, stride_cn),
        acc.to(c_ptr.dtype.element_ty),
        mask=inside(rows, cols, M, N),
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    matmul_kernel[tiles](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
