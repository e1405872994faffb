# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `product_kernel`, `tl.dot(left, tl.reshape(right, (BK, BN)), acc, ...)` takes a reshape for a transposition: the block of b is (BN, BK) and must be `tl.trans(right)`. Wrong in both functions for nearly every case (all but K = 1 with N = 1).
"""Matrix product that reads both operands with K along the second axis of the block."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BM": block_m, "BN": block_n, "BK": block_k}, num_stages=num_stages, num_warps=num_warps
    )


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    side = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        side = min(side, 64)
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= side] or configs[-1:]


@triton.jit
def strip(ptr, outer, end, stride_outer, stride_k, K, k, BK: tl.constexpr):
    """Block of the elements (outer, k) to (outer, k + BK), 0 where there are none."""
    inner = k + tl.arange(0, BK)
    mask = (outer[:, None] < end) & (inner[None, :] < K)
    return tl.load(ptr + outer[:, None] * stride_outer + inner[None, :] * stride_k, mask=mask, other=0.0)


@triton.jit
def corner(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Row and column where a tile begins; GROUP rows of tiles are walked column by column."""
    grid_m = tl.cdiv(M, BM)
    grid_n = tl.cdiv(N, BN)
    width = GROUP * grid_n
    group = pid // width
    size = tl.minimum(grid_m - group * GROUP, GROUP)
    rest = pid % width
    return (group * GROUP + rest % size) * BM, rest // size * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    FUSED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    row, col = corner(tl.program_id(axis=0), M, N, BM, BN, 8)
    rows = (row + tl.arange(0, BM)).to(tl.int64)
    cols = (col + tl.arange(0, BN)).to(tl.int64)
    tl.assume(K > 0)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = strip(a_ptr, rows, M, am, ak, K, k, BK)
        # A block of columns of b, each of them a row here, as it lies in memory for a weight w.T.
        right = strip(b_ptr, cols, N, bn, bk, K, k, BK)
        acc = tl.dot(left, tl.reshape(right, (BK, BN)), acc, input_precision="ieee")
    if FUSED:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + tl.expand_dims(bias, 0), 0.0)
    keep = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * cm + cols[None, :] * cn, acc.to(c_ptr.dtype.element_ty), mask=keep)


def _product(a, b, bias, out, fused):
    M, K = a.shape
    N = b.size(1)
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    product_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), FUSED=fused
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N)."""
    return _product(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _product(a, b, bias, out, True)
