# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Correct in every respect; unusual is that K is split among programs (up to 4 pieces for small results), which store fp32 partial sums to a workspace, and that a second kernel adds them in a fixed order and has the epilogue.
"""Matrix product in two kernels: partial sums over pieces of K, then their sum, with bias and ReLU.

A small result has too few tiles for all multiprocessors. Where K is long, several programs share a tile.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate for the first kernel."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 8),
    _config(64, 128, 64, 3, 8),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, work_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, PIECES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """work[piece] = a @ b over one piece of K; work is (PIECES, M, N), fp32 and contiguous."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    piece = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    in_m = rows[:, None] < M
    in_n = cols[None, :] < N

    # A piece is a whole number of steps; the last ones may be shorter, or empty.
    length = tl.cdiv(tl.cdiv(K, BLOCK_K), PIECES) * BLOCK_K
    begin = piece * length
    end = min(begin + length, K)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + lanes
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=in_m & (ks[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=(ks[:, None] < K) & in_n, other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    slab = work_ptr + piece.to(tl.int64) * M * N
    tl.store(slab + rows[:, None] * N + cols[None, :], acc, mask=in_m & in_n)


@triton.jit
def finish_kernel(
    work_ptr, c_ptr, bias_ptr, M, N, slab, stride_cm, stride_cn, PIECES: tl.constexpr, BIAS_RELU: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """c = the sum of the pieces, with the epilogue; slab is the number of elements of one piece."""
    pid = tl.program_id(0)
    across = tl.cdiv(N, TILE_N)
    rows = (pid // across * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
    cols = (pid % across * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    source = work_ptr + rows[:, None] * N + cols[None, :]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for _ in tl.static_range(PIECES):
        total += tl.load(source, mask=inside, other=0.0)
        source += slab
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    target = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(target, total.to(c_ptr.dtype.element_ty), mask=inside)


def _pieces(M, N, K):
    """Into how many pieces K is cut: only where the result is small and the sum is long."""
    if M * N > 1048576 or K < 512:
        return 1
    return 4 if K >= 2048 else 2


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    pieces = _pieces(M, N, K)
    work = torch.empty((pieces, M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    partial_kernel[lambda meta: (tiles(meta), pieces)](
        a, b, work, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), PIECES=pieces
    )
    finish_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 128),)](
        work, out, bias, M, N, M * N, out.stride(0), out.stride(1),
        PIECES=pieces, BIAS_RELU=bias_relu, TILE_M=16, TILE_N=128, num_warps=4,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
