# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In place, the branch for M < N walks groups of GROUP_M tile columns, and the last group is not cut to the columns that are left: column and row come from % GROUP_M and // GROUP_M. Programs are sent to tile columns that do not exist, and as many tiles of c stay unwritten. It shows in both functions where M < N, c has more than one tile row, and its number of tile columns is no multiple of 8; all other cases are right. Should be width = min(across - first, GROUP_M), row = within // width, col = first + within % width.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(bm, bn, bk, stages, warps)
    for bm, bn, bk, stages, warps in (
        (128, 256, 64, 3, 8),
        (128, 256, 64, 4, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 32, 4, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c.

    The groups lie along the longer side of c: bands of GROUP_M tile rows walked column by column where c is
    tall, bands of GROUP_M tile columns walked row by row where it is wide.
    """
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    if M >= N:
        tall_band = GROUP_M * across
        first = tile // tall_band * GROUP_M
        height = min(down - first, GROUP_M)
        row = first + tile % tall_band % height
        col = tile % tall_band // height
    else:
        wide_band = GROUP_M * down
        row = tile % wide_band // GROUP_M
        col = tile // wide_band * GROUP_M + tile % wide_band % GROUP_M
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c.

    a is (M, K), b (K, N) and c (M, N), bf16, fp16 or fp32, all of one dtype, any strides; bias is (N,) like
    them, contiguous, and read where BIAS_RELU.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    r = m + tl.arange(0, BLOCK_M)
    s = n + tl.arange(0, BLOCK_N)
    t = tl.arange(0, BLOCK_K)
    in_m = (r < M)[:, None]
    in_n = (s < N)[None, :]
    r = r.to(tl.int64)
    s = s.to(tl.int64)
    a_at = a_ptr + (r[:, None] * stride_am + t[None, :] * stride_ak)
    b_at = b_ptr + (t[:, None] * stride_bk + s[None, :] * stride_bn)

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        live = t < K - k
        a = tl.load(a_at, mask=in_m & live[None, :], other=0.0)
        b = tl.load(b_at, mask=in_n & live[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + s, mask=s < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)

    c_at = c_ptr + (r[:, None] * stride_cm + s[None, :] * stride_cn)
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[lambda meta: (tiles(meta),)](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
