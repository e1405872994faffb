# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | _side_by_side looks at stride(1) == 1 only, so padded matrices are sent to dense_kernel, whose block pointers take K, N and N as the row strides of a, b and out; shows in both functions where the columns of a, b and out are all side by side but the rows of at least one of them are padded (more than one row); anything transposed or spread takes strided_kernel and is right; _side_by_side should be x.is_contiguous(), or dense_kernel should be given the row strides
"""Matrix product with one kernel for matrices row after row and one for all other strides."""

import torch
import triton
import triton.language as tl

SHAPES = ((128, 128, 64), (128, 64, 64), (64, 128, 64), (64, 64, 32))
CONFIGS = [
    triton.Config({"BM": m, "BN": n, "BK": k, "GROUP": 8}, num_stages=3, num_warps=8 if m * n > 8192 else 4)
    for m, n, k in SHAPES
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 128
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    per_group = GROUP * tl.cdiv(N, BN)
    top = tile // per_group * GROUP
    height = tl.minimum(tl.cdiv(M, BM) - top, GROUP)
    inside = tile % per_group
    return (top + inside % height) * BM, (inside // height) * BN


@triton.jit
def bias_and_relu(acc, bias_ptr, n, N, BN: tl.constexpr):
    cols = n + tl.arange(0, BN)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def dense_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    BIAS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BM, BN, GROUP)
    a_block = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (m, 0), (BM, BK), (1, 0))
    b_block = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, n), (BK, BN), (1, 0))
    c_block = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (m, n), (BM, BN), (1, 0))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BK))
        b_block = tl.advance(b_block, (BK, 0))
    if BIAS_RELU:
        acc = bias_and_relu(acc, bias_ptr, n, N, BN)
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def strided_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    BIAS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BM, BN, GROUP)
    i = (m + tl.arange(0, BM)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BN)).to(tl.int64)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = (start + tl.arange(0, BK)).to(tl.int64)
        k_col, k_row = k[None, :], k[:, None]
        a = tl.load(a_ptr + i * am + k_col * ak, mask=(i < M) & (k_col < K), other=0.0)
        b = tl.load(b_ptr + k_row * bk + j * bn, mask=(k_row < K) & (j < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = bias_and_relu(acc, bias_ptr, n, N, BN)
    tl.store(c_ptr + i * cm + j * cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _side_by_side(x):
    return x.stride(1) == 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    if all(_side_by_side(x) for x in (a, b, out)):
        dense_kernel[grid](a, b, out, bias, M, N, K, BIAS_RELU=bias_relu)
    else:
        strides = *a.stride(), *b.stride(), *out.stride()
        strided_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, True)
