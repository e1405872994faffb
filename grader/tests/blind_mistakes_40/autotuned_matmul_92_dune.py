# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Computes the transposed tile, B^T A^T, with an accumulator of BLOCK_N x BLOCK_M and the bias as a column; the order of tiles comes from `tl.swizzle2d`, and `triton.heuristics` drops the mask of K where K is a multiple of BLOCK_K.
"""The transposed product in tiles, C^T = B^T A^T, with heuristics that drop masks which are always true."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 8}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; the smallest alone for fp32."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    side = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= side] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def transposed_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    WHOLE_K: tl.constexpr,
):  # fmt: skip
    """Program pid owns a BLOCK_N x BLOCK_M tile of c transposed: columns of c are its axis 0, rows axis 1."""
    pid = tl.program_id(axis=0)
    high, wide = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.swizzle2d(pid // wide, pid % wide, high, wide, GROUP)
    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[None, :]
    j = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
    across, down = tl.arange(0, BLOCK_K)[None, :], tl.arange(0, BLOCK_K)[:, None]
    bt_ptrs = b_ptr + j * stride_bn + across * stride_bk
    at_ptrs = a_ptr + i * stride_am + down * stride_ak

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if WHOLE_K:
            bt = tl.load(bt_ptrs, mask=j < N, other=0.0)
            at = tl.load(at_ptrs, mask=i < M, other=0.0)
        else:
            bt = tl.load(bt_ptrs, mask=(j < N) & (across < K - k), other=0.0)
            at = tl.load(at_ptrs, mask=(i < M) & (down < K - k), other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
        bt_ptrs += BLOCK_K * stride_bk
        at_ptrs += BLOCK_K * stride_ak

    if BIAS_RELU:
        # The columns of c are axis 0 here, so the bias is a column.
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.where(acc > 0.0, acc, 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    transposed_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
