# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `_launch`, `if _describable(a) and _describable(b.T if across else b):` does not ask for `_describable(out)`, though `_describe(out)` makes a descriptor of it, and `TensorDescriptor` raises an AssertionError (16-byte strides, last stride 1). Shows for 16-bit a and b that fit and an `out` that does not: as NT with odd N (129 x 127 x 200 in fp16), or a padded, transposed or spread `out`.
"""Matrix product on tensor descriptors where the layouts allow it, on pointers elsewhere."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def set_blocks(nargs):
    """The tile of each descriptor, from the config about to run."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    if nargs["B_ACROSS"]:
        nargs["b_desc"].block_shape = [nargs["BLOCK_N"], nargs["BLOCK_K"]]
    else:
        nargs["b_desc"].block_shape = [nargs["BLOCK_K"], nargs["BLOCK_N"]]
    nargs["c_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_N"]]


def _configs(pre_hook=None):
    tiles = [(128, 256, 3, 8), (128, 128, 4, 8), (64, 128, 4, 4), (64, 64, 3, 4)]
    return [
        triton.Config(
            {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 64, "GROUP_M": 8},
            num_stages=stages, num_warps=warps, pre_hook=pre_hook,
        )
        for block_m, block_n, stages, warps in tiles
    ]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and for fp32 none above 64 x 64."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(
    configs=_configs(set_blocks), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def descriptor_kernel(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K, B_ACROSS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A load outside of a matrix gives zeros, a store outside is dropped. B_ACROSS: b_desc is that of b.T."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([m, k])
        if B_ACROSS:
            b = b_desc.load([n, k]).T
        else:
            b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, n + tl.arange(0, BLOCK_N), N)
    c_desc.store([m, n], acc.to(c_desc.dtype))


@triton.autotune(configs=_configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    has_row, has_col = rows[:, None] < M, cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=has_row & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & has_col, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=has_row & has_col)


def _describable(x):
    """Rows side by side in memory, each of which begins at a multiple of 16 bytes."""
    pitch = x.stride(0)
    even = pitch * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0
    return x.element_size() == 2 and x.stride(1) == 1 and pitch >= x.shape[1] and even


def _describe(x):
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    across = not _describable(b)
    if _describable(a) and _describable(b.T if across else b):
        descs = _describe(a), _describe(b.T if across else b), _describe(out)
        descriptor_kernel[grid](*descs, bias, M, N, K, B_ACROSS=across, BIAS_RELU=bias_relu)
    else:
        strides = (*a.stride(), *b.stride(), *out.stride())
        pointer_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; 16-bit matrices with rows of whole 16 bytes go through descriptors, b as NN or NT."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
