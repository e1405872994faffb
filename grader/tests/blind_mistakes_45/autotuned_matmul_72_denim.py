# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Nothing is wrong. Unusual: two autotuned kernels, one on host-made tensor descriptors whose block shapes a `pre_hook` sets (a described (N, K) matrix and `tl.trans` where b is a transposed view), the other on pointers for fp32 and all strides that descriptors cannot take; one shared `finish` for the epilogue and the store.
"""Matrix product, autotuned: on tensor descriptors where the operands allow them, on pointers otherwise."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _describe_tiles(nargs):
    """The tiles of the config that is about to run; b may be described as the (N, K) matrix that it views."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    if nargs["B_IS_NK"]:
        nargs["b_desc"].block_shape = [nargs["BLOCK_N"], nargs["BLOCK_K"]]
    else:
        nargs["b_desc"].block_shape = [nargs["BLOCK_K"], nargs["BLOCK_N"]]


def _configs(pre_hook):
    """Large tiles first; the smallest one, at the end, also serves fp32."""
    shapes = (
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (64, 128, 64, 3, 4),
        (64, 64, 32, 3, 4),
    )
    return [
        triton.Config(
            {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8},
            num_stages=stages, num_warps=warps, pre_hook=pre_hook,
        )
        for bm, bn, bk, stages, warps in shapes
    ]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, no wider than 64 for fp32."""
    widest = 64 if named_args["c_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(
    acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The epilogue in fp32, and the store of one tile."""
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.autotune(
    configs=_configs(_describe_tiles), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def described_kernel(
    a_desc, b_desc, c_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
    B_IS_NK: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """16-bit operands whose rows (or the columns of b) lie side by side; the descriptor gives 0 outside."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([m, k])
        if B_IS_NK:
            acc = tl.dot(a, tl.trans(b_desc.load([n, k])), acc)
        else:
            acc = tl.dot(a, b_desc.load([k, n]), acc)
    finish(acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


@triton.autotune(
    configs=_configs(None), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Any strides, any dtype."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M))[:, None]
    cols = (n + tl.arange(0, BLOCK_N))[None, :]
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows.to(tl.int64) * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64) * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    finish(acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


def _describable(x):
    """Whether the copy engine can read this matrix: elements of a row side by side, rows 16 bytes apart."""
    rows, columns = x.shape
    step, beside = x.stride()
    size = x.element_size()
    return (
        size == 2 and beside == 1 and step >= columns and step * size % 16 == 0
        and x.data_ptr() % 16 == 0 and rows * step < 2**31
    )  # fmt: skip


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    b_is_nk = not _describable(b)
    stored = b.T if b_is_nk else b
    if _describable(a) and _describable(stored):
        a_desc = TensorDescriptor(a, list(a.shape), list(a.stride()), [1, 1])
        b_desc = TensorDescriptor(stored, list(stored.shape), list(stored.stride()), [1, 1])
        described_kernel[grid](
            a_desc, b_desc, out, bias, M, N, K, *out.stride(), B_IS_NK=b_is_nk, BIAS_RELU=bias_relu
        )
    else:
        pointer_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
