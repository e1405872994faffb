# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `precision = "ieee" if a.dtype == "float32" else "tf32"` in `_launch` compares a torch.dtype with a text, which is never equal; it should compare with `torch.float32`. fp32 products are formed in TF32 and lose digits, in both functions; fp16 and bf16 are right.
"""Autotuned matmul with helpers for addresses and epilogue; the host chooses how products are formed."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: the last one for 4-byte numbers, else tiles that the result fills."""
    if named_args["a_ptr"].dtype.itemsize == 4:
        return configs[-1:]
    sides = {"BLOCK_M": named_args["M"], "BLOCK_N": named_args["N"]}
    kept = [c for c in configs if all(c.kwargs[name] <= size for name, size in sides.items())]
    return kept or configs[-1:]


@triton.jit
def addresses(ptr, rows, cols, stride_row, stride_col):
    """Pointers to a block of a matrix with rows, a column of numbers, and cols, a row of numbers."""
    return ptr + (rows * stride_row + cols * stride_col)


@triton.jit
def finish(acc, bias_ptr, cols, N):
    """The bias of each column added, and negative values set to 0; all of it in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    return tl.maximum(acc + bias.to(tl.float32), 0.0)


@triton.jit
def own_tile(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Tile row and tile column of this program."""
    pid = tl.program_id(axis=0)
    wide = tl.cdiv(N, BLOCK_N)
    group = pid // (wide * GROUP_M)
    inner = pid - group * wide * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return group * GROUP_M + inner % height, inner // height


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    PRECISION: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of c = a @ b, or of relu(a @ b + bias)."""
    i, j = own_tile(M, N, BLOCK_M, BLOCK_N, 8)
    rows = i.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = j.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    along, across = tl.arange(0, BLOCK_K)[None, :], tl.arange(0, BLOCK_K)[:, None]
    a_block = addresses(a_ptr, rows, along, stride_am, stride_ak)
    b_block = addresses(b_ptr, across, cols, stride_bk, stride_bn)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_block, mask=(rows < M) & (along < left), other=0.0)
        b = tl.load(b_block, mask=(across < left) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_block += BLOCK_K * stride_ak
        b_block += BLOCK_K * stride_bk

    if BIAS_RELU:
        acc = finish(acc, bias_ptr, cols, N)
    c_block = addresses(c_ptr, rows, cols, stride_cm, stride_cn)
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # Products of fp32 keep all their bits; 16-bit numbers are exact on tensor cores as they are.
    precision = "ieee" if a.dtype == "float32" else "tf32"
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(),
        PRECISION=precision, BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
