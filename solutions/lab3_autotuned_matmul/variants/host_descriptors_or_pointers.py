"""EXPECT PASS from matmul and matmul_bias_relu: host descriptors, also of a transposed b."""

from typing import Optional, Tuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

ALIGNMENT = 16  # bytes, of the base and of every stride but the last


def _set_blocks(nargs):
    """The descriptors learn the tile of the config that is about to run."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    if nargs["B_IS_NK"]:
        nargs["b_desc"].block_shape = [nargs["BLOCK_N"], nargs["BLOCK_K"]]
    else:
        nargs["b_desc"].block_shape = [nargs["BLOCK_K"], nargs["BLOCK_N"]]


TILES: Tuple[Tuple[int, int, int, int, int], ...] = (
    # m, n, k, stages, warps
    (128, 256, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (128, 64, 64, 4, 4),
    (64, 64, 64, 4, 4),
    (64, 64, 32, 3, 4),
)


def _make(hook) -> list:
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8},
            num_stages=stages,
            num_warps=warps,
            pre_hook=hook,
        )
        for m, n, k, stages, warps in TILES
    ]


def fitting(configs, named_args, **kwargs):
    M, N = named_args["M"], named_args["N"]
    limit = min(M, N)
    if "a_ptr" in named_args and named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit] or configs[-1:]


@triton.jit
def corner(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finish(
    acc, c_ptr, bias_ptr, m, n, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Epilogue and store; c is always written through pointers, so it may have any strides."""
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)[None, :]
    if BIAS_RELU:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, c, mask=(rows < M) & (cols < N))


@triton.autotune(
    configs=_make(_set_blocks),
    key=["M", "N", "K", "B_IS_NK"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def descriptor_kernel(
    a_desc, b_desc, c_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
    B_IS_NK: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = corner(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([m, k])
        if B_IS_NK:
            b = b_desc.load([n, k]).T
        else:
            b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    finish(acc, c_ptr, bias_ptr, m, n, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


@triton.autotune(configs=_make(None), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = corner(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)[None, :]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_tile = a_ptr + rows * stride_am + ks[None, :] * stride_ak
    b_tile = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_tile, mask=(rows < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_tile, mask=(ks[:, None] < K - k) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    finish(acc, c_ptr, bias_ptr, m, n, M, N, stride_cm, stride_cn, BIAS_RELU, BLOCK_M, BLOCK_N)


def _describable(t: torch.Tensor) -> bool:
    """Columns side by side, rows one after the other, everything on 16-byte steps."""
    rows_apart = t.stride(0) * t.element_size()
    return (
        t.stride(1) == 1
        and t.stride(0) >= t.shape[1]
        and rows_apart % ALIGNMENT == 0
        and t.data_ptr() % ALIGNMENT == 0
    )


def _launch(a, b, bias, out, *, bias_relu: bool):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if M == 0 or N == 0:
        return out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    plain, transposed = _describable(b), _describable(b.T)
    if a.dtype != torch.float32 and _describable(a) and (plain or transposed):
        # The block shapes are placeholders until the pre_hook of a config sets them.
        a_desc = TensorDescriptor.from_tensor(a, [1, 1])
        b_desc = TensorDescriptor.from_tensor(b if plain else b.T, [1, 1])
        descriptor_kernel[grid](
            a_desc,
            b_desc,
            out,
            bias,
            M,
            N,
            K,
            out.stride(0),
            out.stride(1),
            B_IS_NK=not plain,
            BIAS_RELU=bias_relu,
        )
    else:
        pointer_kernel[grid](
            a, b, out, bias, M, N, K,
            a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, *, out: Optional[torch.Tensor] = None
) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
