# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In matmul_kernel, the mask along K is `ks < K`, although a program owns only the share begin to end of K: where the share is no multiple of BLOCK_K, the last step of each share but the last reads on into the next share, whose program adds the same products again, so they are counted twice. Shows only where K is split (K >= 256 and M * N <= 2**18) and cdiv(K, 4) is no multiple of BLOCK_K, as K = 257; right for K = 1024 or 4096, for small K and for large results. It should be `ks < end`.
"""Matrix product that splits K among programs where c is small; a second kernel adds the parts up."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, depth of the pipeline, warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]
FINISH_ROWS, FINISH_COLS = 16, 128


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    within = tile % (GROUP_M * tiles_n)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, share, plane,
    stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of one part: the products of `share` of the K columns of a, in fp32."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    split = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    in_rows = (rows < M)[:, None]
    in_cols = (cols < N)[None, :]
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    begin = split * share
    end = tl.minimum(begin + share, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        in_k = ks < K
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=in_rows & in_k[None, :], other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=in_k[:, None] & in_cols, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    part = part_ptr + split.to(tl.int64) * plane
    tl.store(part + rows[:, None] * N + cols[None, :], acc, mask=in_rows & in_cols)


@triton.jit
def finish_kernel(
    part_ptr, bias_ptr, c_ptr, M, N, plane, stride_cm, stride_cn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c from the sum of the parts, with bias and ReLU where asked for."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, COLS)
    rows = (pid // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % across * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    parts = part_ptr + rows[:, None] * N + cols[None, :]
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in tl.static_range(SPLITS):
        total += tl.load(parts, mask=inside, other=0.0)
        parts += plane
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    c = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=inside)


def _splits(M, N, K):
    """A small result has too few tiles to keep the GPU busy: four programs share a tile then."""
    return 4 if K >= 256 and M * N <= 2**18 else 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    splits = _splits(M, N, K)
    parts = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta), splits)  # noqa: E731
    matmul_kernel[grid](
        a, b, parts, M, N, K, triton.cdiv(K, splits), M * N,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1),
    )  # fmt: skip
    blocks = triton.cdiv(M, FINISH_ROWS) * triton.cdiv(N, FINISH_COLS)
    finish_kernel[(blocks,)](
        parts, bias, out, M, N, M * N, out.stride(0), out.stride(1),
        SPLITS=splits, BIAS_RELU=bias_relu, ROWS=FINISH_ROWS, COLS=FINISH_COLS,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
