# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `matmul_kernel`, `odd = start`: both running sums begin with the bias, so `even + odd` has it twice; `odd` must begin with zeros. All cases of matmul_bias_relu, none of matmul. (2) `odd = tl.dot(a, b, odd)` lacks `input_precision="ieee"`: for fp32 each second block of K is multiplied as TF32, seen in matmul with fp32 and K > BLOCK_K = 32, e.g. 128 x 128 x 128.
"""Autotuned matrix product with two running sums, so that two products are in flight at a time."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# Two sums for each element: 128 x 128 with 8 warps takes as many registers as 128 x 256 with one sum.
CONFIGS = [
    _config(128, 128, 32, 3, 8),
    _config(64, 128, 32, 3, 8),
    _config(128, 64, 32, 3, 8),
    _config(64, 64, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
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
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    rows_ok = rows[:, None] < M
    cols_ok = cols[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    # The sums begin with the bias, then nothing but the clamp is left for the end.
    start = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BIAS_RELU:
        start += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    even = start
    odd = start
    for k in range(0, K, 2 * BLOCK_K):
        left = K - k
        a = tl.load(a_ptrs, mask=rows_ok & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=cols_ok & (ks[:, None] < left), other=0.0)
        even = tl.dot(a, b, even, input_precision="ieee")
        left -= BLOCK_K
        a = tl.load(a_ptrs + BLOCK_K * stride_ak, mask=rows_ok & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs + BLOCK_K * stride_bk, mask=cols_ok & (ks[:, None] < left), other=0.0)
        odd = tl.dot(a, b, odd)
        a_ptrs += 2 * BLOCK_K * stride_ak
        b_ptrs += 2 * BLOCK_K * stride_bk
    acc = even + odd

    if BIAS_RELU:
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=rows_ok & cols_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
