# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | the bias is added along the wrong axis: `acc + shift[:, None]` gives row i of a tile the bias of column i of this tile; must be `shift[None, :]`. It compiles because all tiles are square. Shows in every call of matmul_bias_relu whose bias is not constant; matmul is right.
"""Lab 3 with square tiles only: nothing to decide about which side is the long one."""

import torch
import triton
import triton.language as tl

# side, step along K, stages, warps
SIDES = [(128, 64, 4, 8), (128, 32, 4, 4), (64, 64, 4, 4), (64, 32, 3, 4)]
CONFIGS = [
    triton.Config({"SIDE": side, "STEP": step}, num_stages=stages, num_warps=warps)
    for side, step, stages, warps in SIDES
]


def usable(configs, named_args, **kwargs):
    """Drop tiles wider than the matrix; fp32 gets the small ones."""
    small = min(named_args["M"], named_args["N"])
    if named_args["A"].dtype == torch.float32:
        small = min(small, 64)
    return [c for c in configs if c.kwargs["SIDE"] <= small] or [configs[-1]]


@triton.jit
def swizzle(pid, rows, cols):
    """Row and column of tile pid: bands of eight rows of tiles, column by column inside a band."""
    band = 8 * cols
    top = pid // band * 8
    height = tl.minimum(rows - top, 8)
    rest = pid % band
    return top + rest % height, rest // height


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": usable})
@triton.jit
def square_tiles(
    A, B, C, BIAS, M, N, K,
    sam, sak, sbk, sbn, scm, scn,
    FUSE: tl.constexpr, SIDE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """C = A @ B, or relu(A @ B + BIAS)."""
    tile_row, tile_col = swizzle(tl.program_id(0), tl.cdiv(M, SIDE), tl.cdiv(N, SIDE))
    lane = tl.arange(0, SIDE)
    i = tile_row.to(tl.int64) * SIDE + lane
    j = tile_col.to(tl.int64) * SIDE + lane
    k = tl.arange(0, STEP).to(tl.int64)

    pa = A + (i[:, None] * sam + k[None, :] * sak)
    pb = B + (k[:, None] * sbk + j[None, :] * sbn)
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    for start in range(0, K, STEP):
        inside = start + k < K
        a = tl.load(pa, mask=(i < M)[:, None] & inside[None, :], other=0.0)
        b = tl.load(pb, mask=inside[:, None] & (j < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        pa += STEP * sak
        pb += STEP * sbk

    if FUSE:
        shift = tl.load(BIAS + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + shift[:, None], 0.0)

    pc = C + (i[:, None] * scm + j[None, :] * scn)
    tl.store(pc, acc.to(C.dtype.element_ty), mask=(i < M)[:, None] & (j < N)[None, :])


def _run(a, b, bias, out, fuse):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))

    def grid(meta):
        return (triton.cdiv(M, meta["SIDE"]) * triton.cdiv(N, meta["SIDE"]),)

    square_tiles[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), FUSE=fuse)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _run(a, b, b, out, fuse=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _run(a, b, bias, out, fuse=True)
