# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | 1: `acc = tl.maximum(acc + bias[None, :], 0.0)` in `transposed_kernel`: the tile is N x M, so it should be `bias[:, None]`; the bias follows the rows of c, in nearly all cases of matmul_bias_relu. 2: in `ct_ptrs` the term `rm[None, :] * stride_cm` is int32; it should be `rm.to(tl.int64)[None, :] * stride_cm`: rows of out beyond 2^31 elements are stored elsewhere, in both functions.
"""Matrix product computed as its transpose: a program multiplies columns of b with rows of a, N x M."""

import torch
import triton
import triton.language as tl


def _square(side, block_k, num_stages, num_warps):
    """A square tile, the shape with the most operations a byte for its registers."""
    return triton.Config(
        {"SIDE_N": side, "SIDE_M": side, "BLOCK_K": block_k, "GROUP": 8},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _square(128, 64, 4, 8),
    _square(128, 64, 3, 8),
    _square(128, 32, 4, 8),
    _square(64, 64, 4, 4),
    _square(64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Squares that fit in the result; 64 at most for fp32."""
    side = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    side = min(side, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["SIDE_N"] <= side]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, SIDE_M: tl.constexpr, SIDE_N: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of c that a tile holds; GROUP tile columns are walked row by row."""
    tiles_m = tl.cdiv(M, SIDE_M)
    left = tile // (GROUP * tiles_m) * GROUP
    width = tl.minimum(tl.cdiv(N, SIDE_N) - left, GROUP)
    within = tile % (GROUP * tiles_m)
    return (within // width) * SIDE_M, (left + within % width) * SIDE_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def transposed_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    SIDE_N: tl.constexpr, SIDE_M: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """c.T = b.T @ a.T: the tile of sums has the columns of c along its rows."""
    m, n = place(tl.program_id(0), M, N, SIDE_M, SIDE_N, GROUP)
    rm = m + tl.arange(0, SIDE_M)
    rn = n + tl.arange(0, SIDE_N)
    ks = tl.arange(0, BLOCK_K)
    bt_ptrs = b_ptr + rn.to(tl.int64)[:, None] * stride_bn + ks[None, :] * stride_bk
    at_ptrs = a_ptr + ks[:, None] * stride_ak + rm.to(tl.int64)[None, :] * stride_am
    n_ok = rn[:, None] < N
    m_ok = rm[None, :] < M
    acc = tl.zeros((SIDE_N, SIDE_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        bt = tl.load(bt_ptrs, mask=n_ok & (ks[None, :] < K - k), other=0.0)
        at = tl.load(at_ptrs, mask=(ks[:, None] < K - k) & m_ok, other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
        bt_ptrs += BLOCK_K * stride_bk
        at_ptrs += BLOCK_K * stride_ak
    if BIAS_RELU:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    ct_ptrs = c_ptr + rn.to(tl.int64)[:, None] * stride_cn + rm[None, :] * stride_cm
    tl.store(ct_ptrs, acc.to(c_ptr.dtype.element_ty), mask=n_ok & m_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["SIDE_M"]) * triton.cdiv(N, meta["SIDE_N"]),)  # noqa: E731
    transposed_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides, with fp32 sums and one rounding."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias has one value for each column of c."""
    return _launch(a, b, bias, out, bias_relu=True)
