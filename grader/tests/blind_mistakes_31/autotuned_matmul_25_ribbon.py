# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | a program owns two halves side by side, BLOCK_N columns each, and twin_kernel stores the right half over the left one: the second call `put(c_ptr, right, bias_ptr, rows, cols, ...)` should pass `cols + BLOCK_N`. In every case of both functions the left columns of a tile hold the sums of the right ones (0, or relu(bias), where N ends in the left half), and the right columns are never written
"""Matrix product in which one tile of a meets two tiles of b, so that a is loaded half as often."""

import torch
import triton
import triton.language as tl

# BLOCK_N is one half: a program owns BLOCK_M x 2 BLOCK_N numbers of c.
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in [
        (128, 128, 64, 3, 8),
        (256, 64, 64, 3, 8),
        (128, 64, 64, 4, 8),
        (64, 64, 64, 3, 4),
        (64, 32, 32, 4, 4),
    ]
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], 2 * c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, HIGH: tl.constexpr, WIDE: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile of HIGH x WIDE, in groups of GROUP_M rows of tiles."""
    in_group = GROUP_M * tl.cdiv(N, WIDE)
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, HIGH) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * HIGH, (within // height) * WIDE


@triton.jit
def columns_of(b_ptr, ks, cols, K, N, stride_bk, stride_bn):
    """A tile of b, 0 outside."""
    inside = (ks[:, None] < K) & (cols[None, :] < N)
    return tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=inside, other=0.0)


@triton.jit
def put(c_ptr, acc, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """Finish one half and store it."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    spots = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(spots, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def twin_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns two halves of BLOCK_M x BLOCK_N, side by side."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, 2 * BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    left = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    right = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        inside = (rows[:, None] < M) & (ks[None, :] < K)
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=inside, other=0.0)
        b_left = columns_of(b_ptr, ks, cols, K, N, stride_bk, stride_bn)
        b_right = columns_of(b_ptr, ks, cols + BLOCK_N, K, N, stride_bk, stride_bn)
        left = tl.dot(a, b_left, left, input_precision="ieee")
        right = tl.dot(a, b_right, right, input_precision="ieee")
    put(c_ptr, left, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)
    put(c_ptr, right, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, 2 * meta["BLOCK_N"])  # noqa: E731
    twin_kernel[lambda meta: (tiles(meta),)](
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
