# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | in place, `tl.min(high - top, GROUP_M)` reduces a block along axis GROUP_M instead of taking the smaller of two numbers; a scalar has no such axis, so the kernel does not compile (and does not run in the interpreter) in any case. It should be `tl.minimum(high - top, GROUP_M)`
"""The product of two matrices, one tile of the result to a program."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(bm, bn, bk, stages, warps)
    for bm, bn, bk, stages, warps in (
        (256, 128, 64, 3, 8),
        (128, 256, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Where a tile begins: bands of GROUP_M tile rows, column by column inside a band."""
    high, wide = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    per_band = GROUP_M * wide
    band = tile // per_band
    rest = tile - band * per_band
    top = band * GROUP_M
    height = tl.min(high - top, GROUP_M)
    row = top + rest % height
    column = rest // height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    row_ok, col_ok = i < M, j < N
    a_rows = a_ptr + i * stride_am
    b_cols = b_ptr + j * stride_bn

    tl.assume(K > 0)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = (k0 + tl.arange(0, BLOCK_K)).to(tl.int64)
        k_ok = k < K
        a = tl.load(a_rows + k[None, :] * stride_ak, mask=row_ok & k_ok[None, :], other=0.0)
        b = tl.load(b_cols + k[:, None] * stride_bk, mask=k_ok[:, None] & col_ok, other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")

    if BIAS_RELU:
        sums += tl.load(bias_ptr + j, mask=col_ok, other=0.0).to(tl.float32)
        sums = tl.maximum(sums, 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, sums.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
