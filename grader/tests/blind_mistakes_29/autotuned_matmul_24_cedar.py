# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product on tensor descriptors where the operands allow them, on pointers otherwise."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _cut(nargs):
    """The tile of each descriptor, from the config that is about to run."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    if nargs["NT"]:
        nargs["b_desc"].block_shape = [nargs["BLOCK_N"], nargs["BLOCK_K"]]
    else:
        nargs["b_desc"].block_shape = [nargs["BLOCK_K"], nargs["BLOCK_N"]]


def _configs(pre_hook):
    shapes = [
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 32, 4, 4),
    ]
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8},
            num_stages=stages,
            num_warps=warps,
            pre_hook=pre_hook,
        )
        for m, n, k, stages, warps in shapes
    ]


CONFIGS = _configs(None)
DESCRIPTOR_CONFIGS = _configs(_cut)


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(
    acc, c_ptr, bias_ptr, m, n, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Bias and ReLU in fp32, one rounding, and the store by the strides of c."""
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    exists = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=exists)


@triton.autotune(
    configs=DESCRIPTOR_CONFIGS, key=["M", "N", "K", "NT"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def descriptor_kernel(
    a_desc, b_desc, c_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
    NT: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A descriptor load is a whole tile, with zeros outside of the matrix; with NT b is described as (N, K)."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([m, k])
        if NT:
            b = tl.trans(b_desc.load([n, k]))
        else:
            b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc, input_precision="ieee")
    finish(acc, c_ptr, bias_ptr, m, n, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The same for operands of any strides."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        at = k + ks
        a_ptrs = a_ptr + rows * stride_am + at[None, :] * stride_ak
        b_ptrs = b_ptr + at[:, None] * stride_bk + cols * stride_bn
        a = tl.load(a_ptrs, mask=(rows < M) & (at[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(at[:, None] < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    finish(acc, c_ptr, bias_ptr, m, n, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


def _describable(x):
    """Columns side by side, and every row at a multiple of 16 bytes."""
    pitch = x.stride(0) * x.element_size()
    return x.stride(1) == 1 and pitch > 0 and pitch % 16 == 0 and x.data_ptr() % 16 == 0


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    nt = not _describable(b)
    if _describable(a) and (not nt or _describable(b.T)):
        a_desc = TensorDescriptor.from_tensor(a, [1, 1])
        b_desc = TensorDescriptor.from_tensor(b.T if nt else b, [1, 1])
        descriptor_kernel[grid](
            a_desc, b_desc, out, bias, M, N, K, *out.stride(), NT=nt, BIAS_RELU=bias_relu
        )
    else:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
