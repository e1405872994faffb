# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) matmul_kernel takes `steps = tl.maximum(K // BLOCK_K, 1)`, which drops the tail of K where K > BLOCK_K is no multiple of it; it should be tl.cdiv(K, BLOCK_K). (2) Helper finish applies ReLU before the bias, relu(acc) + bias; it should be relu(acc + bias).
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(bm, bn, 64, 3, 8) for bm, bn in ((128, 256), (256, 128), (128, 128))]
CONFIGS += [_config(64, 128, 64, 4, 4), _config(64, 64, 64, 3, 4)]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    n_tiles = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * n_tiles)
    first = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * n_tiles)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def finish(acc, bias_ptr, cols, N):
    """The epilogue, in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    positive = tl.where(acc > 0.0, acc, 0.0)
    return positive + bias[None, :]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    steps = tl.maximum(K // BLOCK_K, 1)
    for step in range(steps):
        ks = (step * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
        k_ok = ks < K
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=row_ok & k_ok[None, :], other=0.0
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=k_ok[:, None] & col_ok, other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = finish(acc, bias_ptr, cols, N)
    c = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b"""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)"""
    return _launch(a, b, bias, out, bias_relu=True)
