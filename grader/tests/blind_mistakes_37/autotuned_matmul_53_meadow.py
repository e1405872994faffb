# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | in _launch, a column-major `out` (stride(0) == 1 and stride(1) > 1) is computed as out.T = b.T @ a.T, but both kernels (helper bias_and_relu) still add the bias along the columns of what they compute, which are then the rows of the result: row i gets bias[i]; only matmul_bias_relu with a transposed `out` is wrong (and reads past the end of bias where M > N); in the swapped product the bias should follow the rows, `bias[:, None]` loaded from m with M as limit
"""Matrix product on tensor descriptors where the strides allow them, and on pointers elsewhere."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

TILES = (
    # BLOCK_M, BLOCK_N, BLOCK_K, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
)


def _configs(pre_hook=None):
    return [
        triton.Config(
            {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8},
            num_stages=stages,
            num_warps=warps,
            pre_hook=pre_hook,
        )
        for bm, bn, bk, stages, warps in TILES
    ]


def _set_boxes(nargs):
    """What a descriptor loads or stores at once depends on the config that runs."""
    bm, bn, bk = nargs["BLOCK_M"], nargs["BLOCK_N"], nargs["BLOCK_K"]
    nargs["a_desc"].block_shape = [bm, bk]
    nargs["b_desc"].block_shape = [bn, bk] if nargs["B_ACROSS"] else [bk, bn]
    nargs["c_desc"].block_shape = [bm, bn]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    height = tl.minimum(GROUP_M, down - group * GROUP_M)
    rest = tile - group * GROUP_M * across
    column = rest // height
    row = group * GROUP_M + rest - column * height
    return row * BLOCK_M, column * BLOCK_N


@triton.jit
def bias_and_relu(acc, bias_ptr, n, N, BLOCK_N: tl.constexpr):
    """The epilogue of one tile, in fp32."""
    columns = n + tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(
    configs=_configs(_set_boxes), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def described_kernel(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K, B_ACROSS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c; b_desc describes b, or where B_ACROSS its transpose. Outside a matrix are zeros."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = a_desc.load([m, k])
        if B_ACROSS:
            y = b_desc.load([n, k]).T
        else:
            y = b_desc.load([k, n])
        acc = tl.dot(x, y, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = bias_and_relu(acc, bias_ptr, n, N, BLOCK_N)
    c_desc.store([m, n], acc.to(bias_ptr.dtype.element_ty))


@triton.autotune(configs=_configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c for operands of any strides."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    columns = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    steps = tl.arange(0, BLOCK_K)
    a_block = a_ptr + rows * stride_am + steps[None, :] * stride_ak
    b_block = b_ptr + steps[:, None] * stride_bk + columns * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(a_block, mask=(rows < M) & (steps < K - k)[None, :], other=0.0)
        y = tl.load(b_block, mask=(steps < K - k)[:, None] & (columns < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a_block += BLOCK_K * stride_ak
        b_block += BLOCK_K * stride_bk
    if BIAS_RELU:
        acc = bias_and_relu(acc, bias_ptr, n, N, BLOCK_N)
    c_block = c_ptr + rows * stride_cm + columns * stride_cn
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (columns < N))


def _describable(x):
    """Columns side by side, rows a multiple of 16 bytes apart, and a first element on such a multiple."""
    apart = x.stride(0) * x.element_size()
    return x.stride(1) == 1 and apart > 0 and apart % 16 == 0 and x.data_ptr() % 16 == 0


def _copy_engine(device):
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9


def _product(a, b, bias, c, bias_relu):
    """c = a @ b with the epilogue, by the kernel that suits the strides."""
    (M, K), N = a.shape, b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    across = not _describable(b)
    rows_of_b = b.T if across else b
    if _copy_engine(a.device) and _describable(a) and _describable(rows_of_b) and _describable(c):
        descs = [TensorDescriptor.from_tensor(x, [1, 1]) for x in (a, rows_of_b, c)]
        described_kernel[grid](*descs, bias, M, N, K, B_ACROSS=across, BIAS_RELU=bias_relu)
    else:
        matmul_kernel[grid](
            a, b, c, bias, M, N, K, *a.stride(), *b.stride(), *c.stride(), BIAS_RELU=bias_relu
        )


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    if out.stride(0) == 1 and out.stride(1) > 1:
        # Columns of `out` lie in one piece: as rows of the transposed product they are stored in wide pieces.
        _product(b.T, a.T, bias, out.T, bias_relu)
    else:
        _product(a, b, bias, out, bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
