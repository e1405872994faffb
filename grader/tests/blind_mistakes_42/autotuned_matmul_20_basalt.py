# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Two kernels: persistent with `TensorDescriptor` for a and b, set by a `pre_hook`, where 16-bit operands have contiguous rows in steps of 16 bytes, and plain pointers for all else; a shared helper without return value has the epilogue and the store by pointers.
"""Two autotuned matrix products: persistent with tensor descriptors where strides allow it, by pointers elsewhere."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

SHAPES = (  # BLOCK_M, BLOCK_N, BLOCK_K, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 64, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
PROGRAMS = 132


def boxes(nargs):
    """What a descriptor loads at once is the tile of the config."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    nargs["b_desc"].block_shape = [nargs["BLOCK_K"], nargs["BLOCK_N"]]


def _configs(pre_hook):
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8},
            num_stages=stages,
            num_warps=warps,
            pre_hook=pre_hook,
        )
        for m, n, k, stages, warps in SHAPES
    ]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, at most 64 x 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(
    acc, c_ptr, bias_ptr, m, n, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Bias and ReLU where asked for, one rounding, and the store."""
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.autotune(_configs(None), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Any strides: one program for each tile."""
    tl.assume(K > 0)
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
    finish(acc, c_ptr, bias_ptr, m, n, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


@triton.autotune(_configs(boxes), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def descriptor_kernel(
    a_desc, b_desc, c_ptr, bias_ptr, M, N, K, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Rows of a and of b contiguous and 16 bytes apart or a multiple of it; each program takes several tiles."""
    tl.assume(K > 0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc, input_precision="ieee")
        finish(acc, c_ptr, bias_ptr, m, n, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


def _describable(x):
    """Whether the copy engine can read x: 16-bit numbers, rows contiguous, all steps a multiple of 16 bytes."""
    side_by_side = x.stride(1) == 1 and x.stride(0) >= x.shape[1]
    return x.element_size() == 2 and side_by_side and x.stride(0) % 8 == 0 and x.data_ptr() % 16 == 0


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    if _describable(a) and _describable(b):
        # The config that runs sets the real block.
        a_desc = TensorDescriptor(a, [M, K], [a.stride(0), 1], [1, 1])
        b_desc = TensorDescriptor(b, [K, N], [b.stride(0), 1], [1, 1])
        descriptor_kernel[lambda meta: (min(PROGRAMS, tiles(meta)),)](
            a_desc, b_desc, out, bias, M, N, K, *out.stride(), BIAS_RELU=bias_relu
        )
    else:
        pointer_kernel[lambda meta: (tiles(meta),)](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel, whichever of the two it is."""
    return _launch(a, b, bias, out, bias_relu=True)
