# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | finish() returns tl.where(acc > 0, acc, 0) + bias, so ReLU comes before the bias; must be the larger of acc + bias and 0. Shows in nearly every call of matmul_bias_relu (negative results, and sums below 0 with a positive result); matmul is right.
"""Matrix product with an epilogue in a helper of its own."""

import torch
import triton
import triton.language as tl


def _tiles():
    for bm, bn, bk, stages, warps in [
        (128, 256, 64, 4, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 32, 4, 4),
        (64, 128, 32, 4, 4),
        (32, 64, 64, 4, 4),
        (32, 32, 64, 2, 2),
    ]:
        yield triton.Config(
            {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 4}, num_stages=stages, num_warps=warps
        )


CONFIGS = list(_tiles())


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    rows, cols = named_args["M"], named_args["N"]
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    good = []
    for config in configs:
        bm, bn = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
        if max(bm, bn) <= widest and bm <= rows and bn <= cols:
            good.append(config)
    return good or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile, walking down groups of GROUP_M tile rows."""
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    within = tile - group * GROUP_M * across
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    column = within // height
    return (group * GROUP_M + within - column * height) * BLOCK_M, column * BLOCK_N


@triton.jit
def finish(acc, bias_ptr, cols, N):
    """Bias and ReLU on a tile of fp32 sums."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.where(acc > 0.0, acc, 0.0) + bias[None, :]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_ok & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = finish(acc, bias_ptr, cols, N)
    c_tile = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    M, K, N = a.size(0), a.size(1), b.size(1)
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, True)
