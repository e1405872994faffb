# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | the store takes no column stride of out (its columns are taken to lie side by side); stride_cn must multiply the columns; shows only with an out that is transposed or every second column of a wider matrix
"""A tiled product for the tensor cores. Pointers and masks are made by two small functions."""

import torch
import triton
import triton.language as tl

GROUP = 8


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": GROUP},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
    _config(16, 16, 64, 4, 1),
]


def fitting(configs, named_args, **kwargs):
    """Leave out tiles larger than c, and large ones in fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // per_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def address(base, down, right, stride_down, stride_right):
    """The block of pointers to all (down, right)."""
    return base + (down[:, None] * stride_down + right[None, :] * stride_right)


@triton.jit
def inside(down, right, height, width):
    """Which elements of such a block exist."""
    return (down[:, None] < height) & (right[None, :] < width)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = tl.arange(0, BLOCK_M).to(tl.int64) + m
    j = tl.arange(0, BLOCK_N).to(tl.int64) + n
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = tl.arange(0, BLOCK_K).to(tl.int64) + start
        a = tl.load(address(a_ptr, i, k, stride_am, stride_ak), mask=inside(i, k, M, K), other=0.0)
        b = tl.load(address(b_ptr, k, j, stride_bk, stride_bn), mask=inside(k, j, K, N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0)
        acc += bias.to(tl.float32)[None, :]
        acc = tl.where(acc < 0, 0.0, acc)
    tl.store(address(c_ptr, i, j, stride_cm, 1), acc.to(c_ptr.dtype.element_ty), mask=inside(i, j, M, N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), out.stride(0), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
