# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | _launch passes BIAS_RELU=bias is not None, but matmul hands over a as a stand-in for the bias, so the epilogue runs in matmul too: it gives relu(a @ b + the first N numbers stored at a), wrong in every case of matmul (and reads outside of a where N is larger than what a holds); matmul_bias_relu is right. _launch should be told whether there is a bias (a flag), or matmul should pass None and the launch the stand-in.
"""Autotuned product of two matrices, with an epilogue for bias and ReLU."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 4, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 64, 2, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Candidates for these sizes and this dtype."""
    widest = 256
    if named_args["bias_ptr"].dtype == torch.float32:
        widest = 64
    for side in ("M", "N"):
        widest = min(widest, named_args[side])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= widest]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    count_m = tl.cdiv(M, BLOCK_M)
    count_n = tl.cdiv(N, BLOCK_N)
    band = tile // (GROUP_M * count_n)
    band_top = band * GROUP_M
    band_height = tl.minimum(count_m - band_top, GROUP_M)
    in_band = tile - band_top * count_n
    return (band_top + in_band % band_height) * BLOCK_M, (in_band // band_height) * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, cols, N):
    """relu(acc + bias), still in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K)
    rows_ok = rows[:, None] < M
    cols_ok = cols[None, :] < N

    a_from = a_ptr + rows[:, None].to(tl.int64) * stride_am + steps[None, :] * stride_ak
    b_from = b_ptr + steps[:, None] * stride_bk + cols[None, :].to(tl.int64) * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        a_block = tl.load(a_from, mask=rows_ok & (k + steps[None, :] < K), other=0.0)
        b_block = tl.load(b_from, mask=(k + steps[:, None] < K) & cols_ok, other=0.0)
        acc = tl.dot(a_block, b_block, acc, input_precision="ieee")
        a_from += BLOCK_K * stride_ak
        b_from += BLOCK_K * stride_bk

    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    c_to = c_ptr + rows[:, None].to(tl.int64) * stride_cm + cols[None, :].to(tl.int64) * stride_cn
    tl.store(c_to, acc.to(c_ptr.dtype.element_ty), mask=rows_ok & cols_ok)


def _launch(a, b, out, bias):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        *a.stride(), *b.stride(), *out.stride(),
        BIAS_RELU=bias is not None,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; a stands in for the pointer to the bias."""
    return _launch(a, b, out, a)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, out, bias)
