# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | The tile is computed as b.T @ a.T, of shape (BLOCK_N, BLOCK_M), but its store address is `cols[:, None] * stride_cm + rows[None, :] * stride_cn`; it must be cols[:, None] * stride_cn + rows[None, :] * stride_cm. c is transposed where M = N, and stored out of bounds and in wrong places where M and N differ; only 1 x 1 is right.
"""Matrix product: each program computes its tile lying on its side, the columns of c first."""

import torch
import triton
import triton.language as tl


def option(bm, bn, bk, stages, warps):
    return triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk}, num_stages=stages, num_warps=warps)


CONFIGS = [
    option(128, 128, 64, 3, 8),
    option(128, 64, 64, 3, 4),
    option(64, 128, 32, 4, 4),
    option(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    limit = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    limit = min(limit, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    rows = (pid % tiles_m).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (pid // tiles_m).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    row_ok = rows < M
    col_ok = cols < N

    left = b_ptr + cols[:, None] * stride_bn + ks[None, :] * stride_bk
    right = a_ptr + ks[:, None] * stride_ak + rows[None, :] * stride_am
    hop = tl.full((), BLOCK_K, dtype=tl.int64)
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        k_ok = ks < K - done
        b_t = tl.load(left, mask=col_ok[:, None] & k_ok[None, :], other=0.0)
        a_t = tl.load(right, mask=k_ok[:, None] & row_ok[None, :], other=0.0)
        total = tl.dot(b_t, a_t, total, input_precision="ieee")
        left += hop * stride_bk
        right += hop * stride_ak

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[:, None], 0.0)
    where = c_ptr + cols[:, None] * stride_cm + rows[None, :] * stride_cn
    tl.store(where, total.to(c_ptr.dtype.element_ty), mask=col_ok[:, None] & row_ok[None, :])


def multiply(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), out.stride(0), out.stride(1), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return multiply(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return multiply(a, b, bias, out, True)
