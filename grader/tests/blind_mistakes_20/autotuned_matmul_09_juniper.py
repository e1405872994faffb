# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""The transposed product, tile by tile: c.T = b.T @ a.T, with the bias as the first summand."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}, num_stages=num_stages, num_warps=num_warps
    )


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 64, 32, 3, 4),
    _config(32, 32, 32, 2, 2),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and at most 64 x 64 for fp32."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    good = []
    for config in configs:
        if max(config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]) <= limit:
            good.append(config)
    return good or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Tiles in the order of diagonals.

    Number q * tiles_m + r is in tile row r. Its column is q + r, around the end: for one r every column
    comes once, as q goes from 0 to tiles_n - 1.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    r = tile % tiles_m
    q = tile // tiles_m
    return r * BLOCK_M, ((q + r) % tiles_n) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Everything here is (n, m): the columns of c go down, its rows go right."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    # Lanes past the end read another row or column once more; what they sum is never stored.
    some_rows = rows % M
    some_cols = cols % N
    a_base = a_ptr + some_rows[None, :] * stride_am
    b_base = b_ptr + some_cols[:, None] * stride_bn

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    if BIAS_RELU:
        acc += tl.load(bias_ptr + some_cols).to(tl.float32)[:, None]
    for k in range(0, K, BLOCK_K):
        ks = k + lanes
        bt = tl.load(b_base + ks[None, :] * stride_bk, mask=ks[None, :] < K, other=0.0)
        at = tl.load(a_base + ks[:, None] * stride_ak, mask=ks[:, None] < K, other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = tl.where(acc > 0.0, acc, 0.0)

    tl.store(
        c_ptr + cols[:, None] * stride_cn + rows[None, :] * stride_cm,
        acc.to(c_ptr.dtype.element_ty),
        mask=(cols[:, None] < N) & (rows[None, :] < M),
    )


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
