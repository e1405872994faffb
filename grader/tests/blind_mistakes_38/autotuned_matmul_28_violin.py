# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel: tl.dot(b_cols, a_rows, acc) multiplies the transposed tiles, (BLOCK_N, BLOCK_K) by (BLOCK_K, BLOCK_M), so acc is the transposed tile of c (element [j, i] belongs to row m + i, column n + j). Bias and store treat it as (rows, columns); it compiles because all tiles are square. Each tile is stored transposed in its own place, in both functions, and the bias then meets the wrong sums: right only for M = N = 1. It should be turned by tl.trans(acc) after the loop (or the operands loaded as (BLOCK_M, BLOCK_K) and (BLOCK_K, BLOCK_N)).
"""Matrix product in square tiles; both operands are read along K."""

import torch
import triton
import triton.language as tl


def _config(side, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": side, "BLOCK_N": side, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(128, 32, 4, 8),
    _config(64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Squares no larger than the result; 64 x 64 for fp32."""
    largest = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        largest = min(largest, 64)
    return [c for c in configs if c.kwargs["BLOCK_M"] <= largest] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(GROUP_M, tl.cdiv(M, BLOCK_M) - first)
    step = tile % (GROUP_M * tiles_n)
    return (first + step % height) * BLOCK_M, (step // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one square tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        b_cols = tl.load(
            b_ptr + cols[:, None] * stride_bn + ks[None, :] * stride_bk,
            mask=(cols[:, None] < N) & (ks[None, :] < K),
            other=0.0,
        )
        a_rows = tl.load(
            a_ptr + ks[:, None] * stride_ak + rows[None, :] * stride_am,
            mask=(ks[:, None] < K) & (rows[None, :] < M),
            other=0.0,
        )
        acc = tl.dot(b_cols, a_rows, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
