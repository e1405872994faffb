# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product on tensor descriptors where the operands allow it, and on pointers everywhere else."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _set_blocks(nargs):
    nargs["a_desc"].block_shape = [nargs["BM"], nargs["BK"]]
    if nargs["B_TURNED"]:
        nargs["b_desc"].block_shape = [nargs["BN"], nargs["BK"]]
    else:
        nargs["b_desc"].block_shape = [nargs["BK"], nargs["BN"]]
    nargs["c_desc"].block_shape = [nargs["BM"], nargs["BN"]]


DESCRIBED = [
    triton.Config({"BM": bm, "BN": bn, "BK": 64}, num_stages=3, num_warps=warps, pre_hook=_set_blocks)
    for bm, bn, warps in ((128, 256, 8), (256, 128, 8), (128, 128, 8), (64, 128, 4), (64, 64, 4))
]
POINTED = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=3, num_warps=warps)
    for bm, bn, bk, warps in ((128, 256, 64, 8), (128, 128, 64, 8), (64, 128, 64, 4), (64, 64, 32, 4))
]


def _small_enough(configs, named_args, **kwargs):
    side = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        side = min(side, 64)
    kept = [c for c in configs if c.kwargs["BM"] <= side and c.kwargs["BN"] <= side]
    return kept or configs[-1:]


@triton.jit
def _spot(tile, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """First row and column of a tile; eight tile rows share their columns of b."""
    tiles_n = tl.cdiv(N, BN)
    top = tile // (8 * tiles_n) * 8
    height = tl.minimum(tl.cdiv(M, BM) - top, 8)
    rest = tile % (8 * tiles_n)
    return (top + rest % height) * BM, (rest // height) * BN


@triton.jit
def _bias_relu(acc, bias_ptr, n, N, BN: tl.constexpr):
    cols = n + tl.arange(0, BN)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=DESCRIBED, key=["M", "N", "K"], prune_configs_by={"early_config_prune": _small_enough})
@triton.jit
def described_kernel(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K, B_TURNED: tl.constexpr, FUSED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A few programs walk over all tiles; what lies outside a matrix is loaded as 0, and not stored."""
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = _spot(tile, M, N, BM, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            a = a_desc.load([m, k])
            if B_TURNED:
                b = tl.trans(b_desc.load([n, k]))
            else:
                b = b_desc.load([k, n])
            acc = tl.dot(a, b, acc)
        if FUSED:
            acc = _bias_relu(acc, bias_ptr, n, N, BN)
        c_desc.store([m, n], acc.to(bias_ptr.dtype.element_ty))


@triton.autotune(configs=POINTED, key=["M", "N", "K"], prune_configs_by={"early_config_prune": _small_enough})
@triton.jit
def pointed_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FUSED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m, n = _spot(tl.program_id(0), M, N, BM, BN)
    i = (m + tl.arange(0, BM)).to(tl.int64)
    j = (n + tl.arange(0, BN)).to(tl.int64)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        # Lanes past K are 0 in both tiles.
        l = (k + tl.arange(0, BK)).to(tl.int64)  # noqa: E741
        a = tl.load(
            a_ptr + i[:, None] * stride_am + l[None, :] * stride_ak,
            mask=(i[:, None] < M) & (l[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + l[:, None] * stride_bk + j[None, :] * stride_bn,
            mask=(l[:, None] < K) & (j[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if FUSED:
        acc = _bias_relu(acc, bias_ptr, n, N, BN)
    tl.store(
        c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(i[:, None] < M) & (j[None, :] < N),
    )


def _describable(x):
    """Whether the copy engine can fetch tiles of x: columns side by side, rows at multiples of 16 bytes."""
    return (
        x.stride(1) == 1
        and x.stride(0) >= x.shape[1]
        and x.stride(0) * x.element_size() % 16 == 0
        and x.data_ptr() % 16 == 0
    )


def _describe(x):
    # The config that is tried sets the block.
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1])


def _dispatch(a, b, bias, out, fused):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    tiles = lambda meta: triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])  # noqa: E731

    has_engine = a.is_cuda and torch.cuda.get_device_capability(a.device)[0] >= 9
    turned = not _describable(b)
    stored_b = b.T if turned else b
    wanted = has_engine and a.element_size() == 2
    if wanted and _describable(a) and _describable(stored_b) and _describable(out):
        programs = torch.cuda.get_device_properties(a.device).multi_processor_count
        described_kernel[lambda meta: (min(programs, tiles(meta)),)](
            _describe(a), _describe(stored_b), _describe(out), bias, M, N, K, B_TURNED=turned, FUSED=fused
        )
    else:
        pointed_kernel[lambda meta: (tiles(meta),)](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), FUSED=fused
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _dispatch(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _dispatch(a, b, bias, out, fused=True)
