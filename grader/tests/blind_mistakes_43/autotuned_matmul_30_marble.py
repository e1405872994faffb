# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `matmul_kernel` both running sums start from the bias: `odd = start` must be zeros, as `acc = even + odd` then holds the bias twice. Shows in every case of `matmul_bias_relu` (relu(a @ b + 2 bias)); `matmul` is right.
"""Matrix product with two running sums for each tile, autotuned; bias and ReLU in the same kernel."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# Each tile has two sums, so 128 x 128 with 8 warps costs 128 registers a thread. A step takes two blocks of K.
CONFIGS = [
    _config(128, 128, 32, 3, 8),
    _config(128, 128, 64, 2, 8),
    _config(128, 64, 32, 3, 8),
    _config(64, 128, 32, 3, 8),
    _config(64, 64, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32, which has no tensor cores here."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c. Blocks of K go to `even` and `odd` in turn, so that two products need not wait for each other."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    row_in = rows[:, None] < M
    col_in = cols[None, :] < N
    rows = rows.to(tl.int64)
    cols = cols.to(tl.int64)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    start = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        start += bias[None, :]
    even = start
    odd = start
    for k in range(0, K, 2 * BLOCK_K):
        left = K - k
        a0 = tl.load(a_ptrs, mask=row_in & (ks[None, :] < left), other=0.0)
        b0 = tl.load(b_ptrs, mask=(ks[:, None] < left) & col_in, other=0.0)
        even = tl.dot(a0, b0, even, input_precision="ieee")
        left -= BLOCK_K
        a1 = tl.load(a_ptrs + BLOCK_K * stride_ak, mask=row_in & (ks[None, :] < left), other=0.0)
        b1 = tl.load(b_ptrs + BLOCK_K * stride_bk, mask=(ks[:, None] < left) & col_in, other=0.0)
        odd = tl.dot(a1, b1, odd, input_precision="ieee")
        a_ptrs += 2 * BLOCK_K * stride_ak
        b_ptrs += 2 * BLOCK_K * stride_bk
    acc = even + odd
    if BIAS_RELU:
        acc = tl.maximum(acc, 0.0)

    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_in & col_in)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype and any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
