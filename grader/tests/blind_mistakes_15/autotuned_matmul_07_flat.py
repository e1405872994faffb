# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | matmul() passes None for the bias, but fitting() reads named_args["bias_ptr"].dtype: AttributeError, 'NoneType' object has no attribute 'dtype'. It should pass a tensor that stands in, such as a (or fitting should look at a_ptr).
"""Matrix product; tiles in row-major order."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, BLOCK_N)
    # which tile
    rows = (pid // across).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (pid % across).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = rows[:, None] < M
    col_mask = cols[None, :] < N
    # along K
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        at = k + lanes
        a = tl.load(a_ptr + rows[:, None] * stride_am + at[None, :] * stride_ak, mask=row_mask & (at[None, :] < K), other=0)
        b = tl.load(b_ptr + at[:, None] * stride_bk + cols[None, :] * stride_bn, mask=(at[:, None] < K) & col_mask, other=0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    # epilogue
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0)
        acc = tl.maximum(acc + bias[None, :].to(tl.float32), 0.0)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, acc.to(c_ptr.dtype.element_ty), row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a, b, *, out=None):
    # no bias is read here
    return _launch(a, b, None, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _launch(a, b, bias, out, bias_relu=True)
