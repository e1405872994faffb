# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product on tensor descriptors where the operands allow them, and on pointers where not."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def set_boxes(nargs):
    """The tiles of the descriptors are those of the config about to run."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    if nargs["B_BY_COLUMNS"]:
        nargs["b_desc"].block_shape = [nargs["BLOCK_N"], nargs["BLOCK_K"]]
    else:
        nargs["b_desc"].block_shape = [nargs["BLOCK_K"], nargs["BLOCK_N"]]


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


BOXED_CONFIGS = [
    _config(128, 256, 64, 3, 8, set_boxes),
    _config(128, 128, 64, 4, 8, set_boxes),
    _config(64, 128, 64, 4, 4, set_boxes),
    _config(64, 64, 64, 4, 4, set_boxes),
]
PLAIN_CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
    _config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // per_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(
    acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The epilogue and the store of the tile that begins at (m, n)."""
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_at = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.autotune(configs=BOXED_CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def boxed_kernel(
    a_desc, b_desc, c_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
    B_BY_COLUMNS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """16-bit operands only; b_desc describes b, or its transposed view where B_BY_COLUMNS. Outside are zeros."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([m, k])
        if B_BY_COLUMNS:
            b = b_desc.load([n, k]).T
        else:
            b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    finish(acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


@triton.autotune(configs=PLAIN_CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def plain_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Any strides and any of the dtypes."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_at = a_ptr + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_at = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        k_ok = ks < K - k
        a = tl.load(a_at, mask=(rows < M)[:, None] & k_ok[None, :], other=0.0)
        b = tl.load(b_at, mask=k_ok[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    finish(acc, m, n, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


def _lines(x, axis):
    """Whether a descriptor takes x, with lines along `axis`: 16-bit, packed, each begun at a multiple of 16 bytes."""
    step = x.stride(1 - axis)
    packed = x.stride(axis) == 1 and step >= x.shape[axis]
    return packed and x.element_size() == 2 and step % 8 == 0 and x.data_ptr() % 16 == 0


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    by_rows = _lines(b, 1)
    if _lines(a, 1) and (by_rows or _lines(b, 0)):
        # The tiles are not known yet: set_boxes puts them in.
        a_desc = TensorDescriptor(a, [M, K], [a.stride(0), 1], [1, 1])
        if by_rows:
            b_desc = TensorDescriptor(b, [K, N], [b.stride(0), 1], [1, 1])
        else:
            b_desc = TensorDescriptor(b, [N, K], [b.stride(1), 1], [1, 1])
        boxed_kernel[grid](
            a_desc, b_desc, out, bias, M, N, K, out.stride(0), out.stride(1),
            B_BY_COLUMNS=not by_rows, BIAS_RELU=bias_relu,
        )  # fmt: skip
    else:
        plain_kernel[grid](
            a, b, out, bias, M, N, K,
            a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
