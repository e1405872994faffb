# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `pairs_kernel` the line `odd = tl.dot(a1, b1, even, input_precision="ieee")` adds to the sum of the even steps; it should be `tl.dot(a1, b1, odd, ...)`. `even + odd` then counts all even steps twice and only the last odd step, in every size (K = 1, too), in matmul and matmul_bias_relu.
"""Matrix product with two running sums, one for the even steps along K and one for the odd ones."""

import torch
import triton
import triton.language as tl


def _shape(block_m, block_n, block_k, stages, warps):
    """One candidate. A turn of the loop loads two steps, so a stage holds 2 * (BM + BN) * BK numbers."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=stages, num_warps=warps)


# Two sums of 128 x 128 with 8 warps are 128 registers a thread.
CONFIGS = [
    _shape(128, 128, 64, 2, 8),
    _shape(128, 128, 32, 4, 8),
    _shape(128, 64, 32, 4, 8),
    _shape(64, 128, 32, 4, 8),
    _shape(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32, which has no tensor cores here."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 128
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile; GROUP_M tile rows are walked column by column."""
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * across
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def pairs_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    even = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    odd = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, 2 * BLOCK_K):
        left = K - k
        a0 = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < left), other=0.0)
        b0 = tl.load(b_ptrs, mask=(ks[:, None] < left) & col_ok, other=0.0)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
        left -= BLOCK_K
        a1 = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < left), other=0.0)
        b1 = tl.load(b_ptrs, mask=(ks[:, None] < left) & col_ok, other=0.0)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
        even = tl.dot(a0, b0, even, input_precision="ieee")
        odd = tl.dot(a1, b1, even, input_precision="ieee")
    acc = even + odd

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    pairs_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once, into out or a new matrix."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
