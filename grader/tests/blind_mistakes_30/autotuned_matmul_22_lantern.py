# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | in the loop of prefetching_kernel the prefetched tiles are handed over (`a_now, b_now = a_next, b_next`) before tl.dot instead of after it, so each step multiplies the tiles of the next step: the first BLOCK_K indices of K are missing from every sum, and the last step adds zeros (all zero, or relu(bias), for K <= BLOCK_K); shows in every case of both functions; it should be acc = tl.dot(a_now, b_now, acc) first, then the hand-over
"""Matrix product whose loop loads the next pair of tiles while the present one is multiplied."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in (
        (128, 128, 32, 3, 8),
        (128, 64, 32, 3, 4),
        (64, 128, 32, 3, 4),
        (64, 64, 32, 2, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 128
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // across, tile % across, down, across, 8)
    return i * BLOCK_M, j * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def prefetching_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    i_ok = (i < M)[:, None]
    j_ok = (j < N)[None, :]

    a_tile = a_ptr + i[:, None] * stride_am + k.to(tl.int64)[None, :] * stride_ak
    b_tile = b_ptr + k.to(tl.int64)[:, None] * stride_bk + j[None, :] * stride_bn
    left = K
    a_now = tl.load(a_tile, mask=i_ok & (k[None, :] < left), other=0.0)
    b_now = tl.load(b_tile, mask=j_ok & (k[:, None] < left), other=0.0)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
        left = K - (step + 1) * BLOCK_K
        a_next = tl.load(a_tile, mask=i_ok & (k[None, :] < left), other=0.0)
        b_next = tl.load(b_tile, mask=j_ok & (k[:, None] < left), other=0.0)
        a_now, b_now = a_next, b_next
        acc = tl.dot(a_now, b_now, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_tile = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=i_ok & j_ok)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    prefetching_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
