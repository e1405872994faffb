# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | `acc = tl.zeros(...)` stands before the loop over the column tiles (`for col in range(0, N, BLOCK_N)`), so each tile of a strip also contains the sums of the tiles to its left; it should be set to zeros inside that loop, before the loop over K.
"""Matrix product: each program walks along one strip of rows of c, tile by tile."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """Tile sizes of one candidate. A strip needs no grouping."""
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def strip_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program i computes rows i * BLOCK_M to (i + 1) * BLOCK_M - 1 of c, from the left to the right."""
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    lanes_n = tl.arange(0, BLOCK_N).to(tl.int64)
    lanes_k = tl.arange(0, BLOCK_K).to(tl.int64)
    row_ok = rows[:, None] < M
    a_rows = a_ptr + rows[:, None] * stride_am
    c_rows = c_ptr + rows[:, None] * stride_cm

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for col in range(0, N, BLOCK_N):
        cols = col + lanes_n
        col_ok = cols[None, :] < N
        b_cols = b_ptr + cols[None, :] * stride_bn
        for k in range(0, K, BLOCK_K):
            ks = k + lanes_k
            a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok & (ks[None, :] < K), other=0.0)
            b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & col_ok, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        result = acc
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            result = tl.maximum(acc + bias[None, :], 0.0)
        tl.store(c_rows + cols[None, :] * stride_cn, result.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    strips = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]),)  # noqa: E731
    strip_kernel[strips](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
