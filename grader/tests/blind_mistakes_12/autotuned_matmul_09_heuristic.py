# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | the heuristic EVEN_K asks whether K is a multiple of 16, but the steps are 32 or 64 wide: it must be K % BLOCK_K == 0; the rest of K is dropped where K is a multiple of 16 and not of BLOCK_K (16, 48, 80, 144), right for odd K
"""Matmul with its K loop in two parts: whole steps without a mask along K, then what is left."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that fit into the result; for fp32 at most 64 wide."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of the first element of a tile."""
    width = tl.cdiv(N, BLOCK_N) * GROUP_M
    first = (tile // width) * GROUP_M
    rows_here = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    inside = tile % width
    return (first + inside % rows_here) * BLOCK_M, (inside // rows_here) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % 16 == 0})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lane = tl.arange(0, BLOCK_K).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    whole = K // BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, whole):
        k = lane + step * BLOCK_K
        a = tl.load(a_ptr + rows[:, None] * stride_am + k[None, :] * stride_ak, mask=row_ok, other=0.0)
        b = tl.load(b_ptr + k[:, None] * stride_bk + cols[None, :] * stride_bn, mask=col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if not EVEN_K:
        k = lane + whole * BLOCK_K
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + k[None, :] * stride_ak, mask=row_ok & (k[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + k[:, None] * stride_bk + cols[None, :] * stride_bn, mask=col_ok & (k[:, None] < K), other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_ok & col_ok,
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; K may have any length from 1 on."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
