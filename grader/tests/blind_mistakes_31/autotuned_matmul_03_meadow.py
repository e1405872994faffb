# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In matmul_kernel the loop along K is unrolled by two and leaves up to 2 * BLOCK_K - 1 columns over, but the code after it (if left > 0: one tl.dot with the mask ks < left) covers only BLOCK_K = 64 of them. Wrong where K modulo 128 is above 64, as for K = 80, 96 or 200: the last K modulo 128 - 64 terms are missing from both functions. It should take a second block of the rest, as with for k in range(0, left, BLOCK_K).
"""Matrix product with two sums for each tile, one for the even and one for the odd blocks of K."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 64, "GROUP_M": 6},
        num_stages=num_stages,
        num_warps=num_warps,
    )


# Two sums for each element: half of the usual tile.
CONFIGS = [_config(128, 128, 3, 8), _config(128, 64, 3, 8), _config(64, 128, 3, 8), _config(64, 64, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * columns
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c. Neighbouring blocks of K go to different sums, so that two products are under way."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    row_in = rows[:, None] < M
    col_in = cols[None, :] < N
    a_tile = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_tile = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    block = tl.full([], BLOCK_K, tl.int64)
    step_a = block * stride_ak
    step_b = block * stride_bk

    even = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    odd = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    pairs = K // (2 * BLOCK_K)
    for pair in range(pairs):
        a0 = tl.load(a_tile, mask=row_in, other=0.0)
        b0 = tl.load(b_tile, mask=col_in, other=0.0)
        even = tl.dot(a0, b0, even, input_precision="ieee")
        a1 = tl.load(a_tile + step_a, mask=row_in, other=0.0)
        b1 = tl.load(b_tile + step_b, mask=col_in, other=0.0)
        odd = tl.dot(a1, b1, odd, input_precision="ieee")
        a_tile += 2 * step_a
        b_tile += 2 * step_b
    left = K - pairs * 2 * BLOCK_K
    if left > 0:
        a0 = tl.load(a_tile, mask=row_in & (ks[None, :] < left), other=0.0)
        b0 = tl.load(b_tile, mask=col_in & (ks[:, None] < left), other=0.0)
        even = tl.dot(a0, b0, even, input_precision="ieee")
    acc = even + odd

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_tile = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_in & col_in)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
