# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right: 16-bit matrices whose rows a tensor descriptor can describe (b as NN or NT) take the kernel of descriptors, all others the kernel of pointers
"""Matrix product on tensor descriptors where the strides allow them, and on pointers elsewhere."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _shape_descriptors(args):
    """The tile of a config is the tile of its descriptors."""
    args["a_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_K"]]
    args["c_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_N"]]
    if args["B_ACROSS"]:
        args["b_desc"].block_shape = [args["BLOCK_N"], args["BLOCK_K"]]
    else:
        args["b_desc"].block_shape = [args["BLOCK_K"], args["BLOCK_N"]]


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


TILES = ((128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 8), (64, 64, 64, 4, 4))
CONFIGS = [_config(*tile) for tile in TILES]
DESC_CONFIGS = [_config(*tile, pre_hook=_shape_descriptors) for tile in TILES]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def finish(acc, bias_ptr, n, N, BLOCK_N: tl.constexpr):
    cols = n + tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(
    configs=DESC_CONFIGS, key=["M", "N", "K", "B_ACROSS"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def descriptor_kernel(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K, B_ACROSS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A descriptor loads 0 outside its matrix and stores nothing there. B_ACROSS: b_desc describes b.T, (N, K)."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([m, k])
        if B_ACROSS:
            acc = tl.dot(a, b_desc.load([n, k]).T, acc)
        else:
            acc = tl.dot(a, b_desc.load([k, n]), acc)
    if BIAS_RELU:
        acc = finish(acc, bias_ptr, n, N, BLOCK_N)
    c_desc.store([m, n], acc.to(bias_ptr.dtype.element_ty))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_mask = (rows < M) & (ks[None, :] < K)
        b_mask = (ks[:, None] < K) & (cols < N)
        a = tl.load(a_ptr + rows * stride_am + ks[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols * stride_bn, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = finish(acc, bias_ptr, n, N, BLOCK_N)
    tl.store(
        c_ptr + rows * stride_cm + cols * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows < M) & (cols < N),
    )


def _describable(x):
    """Whether a descriptor can describe x: rows in one piece, 16-byte steps from row to row, an aligned base."""
    step = x.stride(0)
    side_by_side = x.stride(1) == 1 and step >= x.shape[1]
    return side_by_side and step * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    across = not _describable(b) and _describable(b.T)
    stored_b = b.T if across else b
    if a.element_size() == 2 and all(_describable(x) for x in (a, stored_b, out)):
        a_desc, b_desc, c_desc = [TensorDescriptor.from_tensor(x, [1, 1]) for x in (a, stored_b, out)]
        descriptor_kernel[grid](
            a_desc, b_desc, c_desc, bias, M, N, K, B_ACROSS=across, BIAS_RELU=bias_relu
        )
    else:
        pointer_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for one dtype and any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
