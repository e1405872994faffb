# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `place`, `height = tl.minimum(tiles_m, GROUP_M)` is the same for all groups: the last group must be `tl.minimum(tiles_m - first, GROUP_M)` high, with `in_group = GROUP_M * tiles_n`. Shows where there are more than 8 rows of tiles, in a number that is no multiple of 8, and more than one column of tiles (M = 521 with 64 rows a tile, M = 1031 with 64 or 128): some tiles of the last rows have no program and stay unwritten. Both functions and both kernels.
"""Autotuned matrix product: tensor descriptors where the operands allow them, pointers and masks elsewhere."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _set_blocks(nargs):
    """The config that is about to run sets the tiles of both descriptors."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    nargs["b_desc"].block_shape = [nargs["BLOCK_K"], nargs["BLOCK_N"]]


def _configs(pre_hook=None):
    shapes = [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 8), (128, 64, 64, 3, 4), (64, 64, 32, 3, 4)]
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=s, num_warps=w, pre_hook=pre_hook
        )
        for m, n, k, s, w in shapes
    ]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c, in groups of at most GROUP_M rows of tiles."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    # A result with fewer rows of tiles than a group has is one lower group.
    height = tl.minimum(tiles_m, GROUP_M)
    in_group = height * tiles_n
    first = tile // in_group * height
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(
    acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The epilogue, in fp32, and the store."""
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(
    configs=_configs(_set_blocks), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def descriptor_kernel(
    a_desc, b_desc, c_ptr, bias_ptr, M, N, K, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c; a descriptor gives 0 outside of its matrix."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc, input_precision="ieee")
    finish(acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


@triton.autotune(configs=_configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The same for any strides and dtypes."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    finish(acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


def _describable(x):
    """16 bits a number, columns side by side, and rows that begin at multiples of 16 bytes without overlap."""
    rows_apart = x.stride(0) >= x.shape[1] and x.stride(0) * x.element_size() % 16 == 0
    return x.element_size() == 2 and x.stride(1) == 1 and rows_apart and x.data_ptr() % 16 == 0


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    if _describable(a) and _describable(b):
        a_desc = TensorDescriptor(a, [M, K], [a.stride(0), 1], [1, 1])
        b_desc = TensorDescriptor(b, [K, N], [b.stride(0), 1], [1, 1])
        descriptor_kernel[grid](
            a_desc, b_desc, out, bias, M, N, K, out.stride(0), out.stride(1), BIAS_RELU=bias_relu
        )
    else:
        pointer_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
