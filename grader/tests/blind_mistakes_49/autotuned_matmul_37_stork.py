# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `matmul_kernel`, `row_of_a = rows * stride_am.to(tl.int64)` and `row_of_c = rows * stride_cm.to(tl.int64)`: an integer argument that is 1 is a constant without `.to`, so the kernel does not compile where stride_am or stride_cm is 1; it should be `rows.to(tl.int64) * stride_am` (and stride_cm). Shows in both functions for a transposed `a` or `out` without gaps, for K = 1 with a contiguous `a`, and for N = 1 with a contiguous result.
"""Matrix product, one program for each tile of c, in the order of tl.swizzle2d."""

import torch
import triton
import triton.language as tl


def _tile(m, n, k, stages, warps):
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _tile(128, 256, 64, 3, 8),
    _tile(256, 128, 64, 3, 8),
    _tile(128, 128, 64, 4, 8),
    _tile(64, 128, 64, 4, 4),
    _tile(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of the tile of this program."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(axis=0)
    i, j = tl.swizzle2d(pid // across, pid % across, down, across, GROUP_M)
    return i * BLOCK_M, j * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias), with addresses of 64 bits across rows of a and c and columns of b."""
    m, n = place(M, N, BLOCK_M, BLOCK_N, 8)
    rows = m + tl.arange(0, BLOCK_M)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)

    row_of_a = rows * stride_am.to(tl.int64)
    row_of_c = rows * stride_cm.to(tl.int64)
    a_ptrs = a_ptr + row_of_a[:, None] + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + (cols * stride_bn)[None, :]
    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        left = K - k
        a = tl.load(a_ptrs, mask=row_ok & (ks < left)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=col_ok & (ks < left)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + row_of_c[:, None] + (cols * stride_cn)[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
