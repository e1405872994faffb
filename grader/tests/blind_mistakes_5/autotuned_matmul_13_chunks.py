# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | Where K > 512 the two partial products are added by host code, `out.copy_(part[0] + part[1])`: an operator on tensors outside a kernel and `copy_` are not permitted (POLICY). A kernel has to add them.
"""Split-K matrix product: every split has a chunk of K of its own and writes its partial product."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, chunk,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c[s] = a[:, s * chunk : (s + 1) * chunk] @ b[s * chunk : (s + 1) * chunk, :]"""
    pid_m, pid_n, pid_s = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    begin = pid_s * chunk
    end = min(begin + chunk, K)
    ks = begin + tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        k_here = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptrs, mask=(rows < M)[:, None] & (k_here < end)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(k_here < end)[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + pid_s.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; a long K is cut in two, so that more programs have work."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    splits = 2 if K > 512 else 1
    chunk = triton.cdiv(K, splits)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]), splits)  # noqa: E731
    strides = (*a.stride(), *b.stride())
    if splits == 1:
        matmul_kernel[grid](a, b, out, a, M, N, K, chunk, *strides, 0, *out.stride(), BIAS_RELU=False)
        return out
    part = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](a, b, part, a, M, N, K, chunk, *strides, *part.stride(), BIAS_RELU=False)
    out.copy_(part[0] + part[1])
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel, never split."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]), 1)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, K, *a.stride(), *b.stride(), 0, *out.stride(), BIAS_RELU=True)
    return out
