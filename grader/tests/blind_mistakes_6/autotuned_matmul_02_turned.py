# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | The tile is held turned, axis 0 is the columns n of c, but the bias is broadcast as bias[None, :], along the rows m; it must be bias[:, None] (matmul_bias_relu).
"""The product as (b.T @ a.T): a tile of the result is computed lying on its side."""

import torch
import triton
import triton.language as tl


def _config(side, block_k, num_stages, num_warps):
    """Square tiles only, so that nothing changes when a tile is turned."""
    return triton.Config({"SIDE": side, "BLOCK_K": block_k}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(128, 32, 4, 8), _config(64, 64, 4, 4), _config(32, 32, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """Small tiles for fp32 and for small results."""
    widest = 32 if named_args["a_ptr"].dtype == torch.float32 else 128
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if c.kwargs["SIDE"] <= size] or configs[-1:]


@triton.jit
def load_tile(ptr, i, j, stride_i, stride_j, end_i, end_j):
    """Elements (i, j) of a matrix as a tile, 0 where there is no such element; i is a column, j a row."""
    return tl.load(ptr + i * stride_i + j * stride_j, mask=(i < end_i) & (j < end_j), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def turned_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SIDE: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A program owns one tile of c, counted row by row."""
    tiles_n = tl.cdiv(N, SIDE)
    m = (tl.program_id(axis=0) // tiles_n * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    n = (tl.program_id(axis=0) % tiles_n * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    acc = tl.zeros((SIDE, SIDE), dtype=tl.float32)  # axis 0 is n, axis 1 is m
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        b_t = load_tile(b_ptr, n[:, None], ks[None, :], stride_bn, stride_bk, N, K)
        a_t = load_tile(a_ptr, ks[:, None], m[None, :], stride_ak, stride_am, K, M)
        acc = tl.dot(b_t, a_t, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + n[:, None] * stride_cn + m[None, :] * stride_cm
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(n[:, None] < N) & (m[None, :] < M))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["SIDE"]) * triton.cdiv(N, meta["SIDE"]),)  # noqa: E731
    turned_kernel[grid](
        a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, fp32 sums."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, True)
