# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In the epilogue of the transposed tile (acc is columns of C down, rows across) the bias is added as `bias[None, :]`, along the rows of C; it must be `bias[:, None]`. matmul is right, matmul_bias_relu is wrong.
"""The tile is computed as its transpose: C^T = B^T A^T, which reads B along its rows when B is a weight."""

import torch
import triton
import triton.language as tl


def _config(block, block_k, num_stages, num_warps):
    return triton.Config({"BLOCK": block, "BLOCK_K": block_k}, num_stages=num_stages, num_warps=num_warps)


# square tiles only
CONFIGS = [_config(128, 64, 3, 8), _config(128, 32, 4, 8), _config(64, 64, 4, 4), _config(64, 32, 4, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if c.kwargs["BLOCK"] <= min(widest, size)] or configs[-1:]


@triton.jit
def load_tile(ptr, outer, inner, n_outer, n_inner, stride_outer, stride_inner):
    """A tile of a matrix, outer index down and inner index across, and 0 where the matrix ends."""
    mask = (outer[:, None] < n_outer) & (inner[None, :] < n_inner)
    return tl.load(ptr + outer[:, None] * stride_outer + inner[None, :] * stride_inner, mask=mask, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A program owns the rows i and the columns j of c; acc[x, y] belongs to c[i[y], j[x]]."""
    i = (tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    j = (tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_t = load_tile(a_ptr, k, i, K, M, stride_ak, stride_am)
        b_t = load_tile(b_ptr, j, k, N, K, stride_bn, stride_bk)
        acc = tl.dot(b_t, a_t, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + j[:, None] * stride_cn + i[None, :] * stride_cm
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(j[:, None] < N) & (i[None, :] < M))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK"]), triton.cdiv(M, meta["BLOCK"]))  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
