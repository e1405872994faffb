# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Nothing is wrong. Unusual: a persistent kernel on host tensor descriptors, whose block shapes a pre_hook sets, with b either by rows or transposed, and stores by pointers for any strides of out; fp32 and all other layouts go to a pointer kernel.
"""Matrix product: tensor descriptors and persistent programs where the strides allow it, else pointers."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

PROGRAMS = 132  # the SMs of an H200


def shape_blocks(nargs):
    """The tile of a config is the tile of its descriptors."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    if nargs["B_ACROSS"]:
        nargs["b_desc"].block_shape = [nargs["BLOCK_N"], nargs["BLOCK_K"]]
    else:
        nargs["b_desc"].block_shape = [nargs["BLOCK_K"], nargs["BLOCK_N"]]


SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 3, 4),
)
BLOCKS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8},
        num_stages=s,
        num_warps=w,
        pre_hook=shape_blocks,
    )
    for m, n, k, s, w in SHAPES
]
POINTERS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=s, num_warps=w)
    for m, n, k, s, w in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; for fp32 64 x 64."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def finish(sums, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """Epilogue and store of a tile; c may have any strides."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.autotune(
    configs=BLOCKS, key=["M", "N", "K", "B_ACROSS"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def described_kernel(
    a_desc, b_desc, c_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
    B_ACROSS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Each program walks over tiles of c; what lies outside of a and b is loaded as 0."""
    tl.assume(K > 0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([m, k])
            if B_ACROSS:
                b = b_desc.load([n, k]).T
            else:
                b = b_desc.load([k, n])
            sums = tl.dot(a, b, sums, input_precision="ieee")
        rows = m + tl.arange(0, BLOCK_M)
        cols = n + tl.arange(0, BLOCK_N)
        finish(sums, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


@triton.autotune(configs=POINTERS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The same for any strides, one program for each tile."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows < M)[:, None] & (ks < K - k)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(ks < K - k)[:, None] & (cols < N)[None, :], other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    finish(sums, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def describable(x):
    """Columns side by side, rows in steps of 16 bytes that do not overlap."""
    step = x.stride(0)
    return (
        x.stride(1) == 1
        and step >= x.shape[1]
        and step * x.element_size() % 16 == 0
        and step * x.element_size() < 2**40
        and x.data_ptr() % 16 == 0
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    across = not describable(b)
    b_rows = b.T if across else b

    def tiles(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    def programs(meta):
        return (min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    if a.dtype != torch.float32 and describable(a) and describable(b_rows):
        a_desc = TensorDescriptor.from_tensor(a, [64, 32])
        b_desc = TensorDescriptor.from_tensor(b_rows, [64, 32])
        described_kernel[programs](
            a_desc, b_desc, out, bias, M, N, K, out.stride(0), out.stride(1),
            B_ACROSS=across, BIAS_RELU=bias_relu,
        )  # fmt: skip
    else:
        pointer_kernel[tiles](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
