# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Host-side `TensorDescriptor` for 16-bit operands with dense aligned rows, b as (K, N) or as (N, K) with `.T` in the kernel, block shapes set in a `pre_hook` under a condition; a pointer kernel for all other operands. Both share `place` and `finish`; the store is by pointers, so `out` may have any strides.
"""Matrix product on tensor descriptors where the operands allow them, and on pointers where not."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# block_m, block_n, block_k, num_stages, num_warps
SHAPES = [
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (64, 128, 64, 3, 4),
    (64, 64, 64, 3, 4),
]


def set_blocks(nargs):
    """The boxes of the descriptors are the tiles of the config about to run; b may be stored as (N, K)."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    if nargs["B_BY_COLUMN"]:
        nargs["b_desc"].block_shape = [nargs["BLOCK_N"], nargs["BLOCK_K"]]
    else:
        nargs["b_desc"].block_shape = [nargs["BLOCK_K"], nargs["BLOCK_N"]]


def _configs(pre_hook=None):
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps, pre_hook=pre_hook
        )
        for m, n, k, stages, warps in SHAPES
    ]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; fp32 is multiplied without tensor cores, in small ones."""
    widest = 64 if named_args["c_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Origin of the tile of this program, eight rows of tiles at a time."""
    tile = tl.program_id(axis=0)
    wide = tl.cdiv(N, BLOCK_N)
    top = tile // (8 * wide) * 8
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, 8)
    within = tile % (8 * wide)
    return (top + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(
    acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Bias, ReLU, rounding and store of the tile at (m, n)."""
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(
    configs=_configs(set_blocks),
    key=["M", "N", "K", "B_BY_COLUMN"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def described_kernel(
    a_desc, b_desc, c_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
    B_BY_COLUMN: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Loads of whole boxes; what lies outside of a matrix is 0."""
    m, n = place(M, N, BLOCK_M, BLOCK_N)
    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([m, k])
        if B_BY_COLUMN:
            acc = tl.dot(a, b_desc.load([n, k]).T, acc)
        else:
            acc = tl.dot(a, b_desc.load([k, n]), acc)
    finish(acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


@triton.autotune(configs=_configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def strided_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same for any strides and any dtype."""
    m, n = place(M, N, BLOCK_M, BLOCK_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    finish(acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


def _describable(x):
    """16 bits an element, dense rows that do not overlap, and everything begins at a multiple of 16 bytes."""
    dense = x.element_size() == 2 and x.stride(1) == 1 and x.stride(0) >= x.shape[1]
    return dense and x.stride(0) % 8 == 0 and x.data_ptr() % 16 == 0


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    by_column = _describable(b.T)
    if _describable(a) and (by_column or _describable(b)):
        a_desc = TensorDescriptor.from_tensor(a, [64, 64])
        b_desc = TensorDescriptor.from_tensor(b.T if by_column else b, [64, 64])
        described_kernel[tiles](
            a_desc, b_desc, out, bias, M, N, K, out.stride(0), out.stride(1),
            B_BY_COLUMN=by_column, BIAS_RELU=bias_relu,
        )  # fmt: skip
    else:
        strided_kernel[tiles](
            a, b, out, bias, M, N, K,
            a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
