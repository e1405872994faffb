# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) operand converts every tile to fp16 (.to(tl.float16)), so fp32 inputs lose 13 of 24 bits (and beyond 65504 become inf, as do such bf16 inputs): wrong in both functions for fp32, and for bf16 with very large or very small values. The tile should keep its loaded dtype. (2) The epilogue of matmul_kernel clamps before it adds the bias, tl.maximum(acc, 0.0) + bias: wrong in matmul_bias_relu in every case. It should be tl.maximum(acc + bias, 0.0).
"""Matrix product on tensor cores, with a choice of tiles, and bias and ReLU on top."""

import itertools

import torch
import triton
import triton.language as tl

CONFIGS = [
    *[
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=8)
        for m, n in itertools.product((256, 128), (256, 128))
        if m * n <= 128 * 256
    ],
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """What fits the result; one small tile for fp32."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    rows_of_tiles = tl.cdiv(M, BLOCK_M)
    tiles_a_group = tl.cdiv(N, BLOCK_N) * GROUP_M
    group, index = tile // tiles_a_group, tile % tiles_a_group
    above = group * GROUP_M
    height = tl.minimum(rows_of_tiles - above, GROUP_M)
    return (above + index % height) * BLOCK_M, (index // height) * BLOCK_N


@triton.jit
def operand(ptrs, mask):
    """A tile for the tensor cores, 0 where it lies outside."""
    return tl.load(ptrs, mask=mask, other=0.0).to(tl.float16)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    col = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    inner = tl.arange(0, BLOCK_K).to(tl.int64)
    a_at = a_ptr + row[:, None] * stride_am + inner[None, :] * stride_ak
    b_at = b_ptr + inner[:, None] * stride_bk + col[None, :] * stride_bn
    in_row, in_col = row[:, None] < M, col[None, :] < N
    depth = tl.full([], BLOCK_K, tl.int64)
    a_step, b_step = depth * stride_ak, depth * stride_bk

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = operand(a_at, in_row & (inner[None, :] < K - k))
        b = operand(b_at, in_col & (inner[:, None] < K - k))
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += a_step
        b_at += b_step

    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0) + bias
    c_at = c_ptr + row[:, None] * stride_cm + col[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=in_row & in_col)


def _product(a, b, bias, out, bias_relu):
    (M, K), (_, N) = a.shape, b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    programs = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[programs](
        a, b, c, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return c


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _product(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b with a bias for each column, and ReLU."""
    return _product(a, b, bias, out, True)
