# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Stream-K: the steps along K of all tiles stand in one long line, and each program gets an equal piece of it.

A piece may begin and end in the middle of a tile. So every program adds what it has to an fp32 workspace, and a
second kernel turns the workspace into the result.
"""

import torch
import triton
import triton.language as tl

WORKERS = 132
SPREAD = (32, 128)


def _candidates():
    table = (
        # BM, BN, BK, stages, warps
        (128, 256, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (128, 128, 32, 4, 8),
        (64, 128, 32, 4, 4),
        (64, 64, 32, 3, 4),
    )
    return [
        triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)
        for bm, bn, bk, stages, warps in table
    ]


def _fits(configs, named_args, **kwargs):
    fp32 = named_args["a_ptr"].dtype == torch.float32
    most = min(named_args["M"], named_args["N"], 64 if fp32 else 256)
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= most] or configs[-1:]


@triton.jit
def _origin(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, TALL: tl.constexpr):
    """Tiles are numbered down a band of TALL tile rows, then one column on."""
    bands = TALL * tl.cdiv(N, BN)
    top = (tile // bands) * TALL
    tall = min(tl.cdiv(M, BM) - top, TALL)
    inside = tile % bands
    return (top + inside % tall) * BM, (inside // tall) * BN


@triton.autotune(
    configs=_candidates(),
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": _fits},
    reset_to_zero=["work_ptr"],
)
@triton.jit
def _stream(
    a_ptr, b_ptr, work_ptr, M, N, K, sam, sak, sbk, sbn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Adds this program's share of all steps to the workspace, which is (M, N), contiguous and zero."""
    programs = tl.num_programs(0)
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    # ceil(tiles * steps / programs), without the product of all three sizes
    share = tiles // programs * steps + tl.cdiv(tiles % programs * steps, programs)

    begin = tl.program_id(0).to(tl.int64) * share
    tile = begin // steps
    step = (begin % steps).to(tl.int32)
    left = share
    while (left > 0) & (tile < tiles):
        take = min(left, steps - step)
        m, n = _origin(tile, M, N, BM, BN, 8)
        rows = (m + tl.arange(0, BM)).to(tl.int64)[:, None]
        cols = (n + tl.arange(0, BN)).to(tl.int64)[None, :]
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for s in range(step, step + take):
            ks = (s * BK + tl.arange(0, BK)).to(tl.int64)
            x = tl.load(a_ptr + rows * sam + ks[None, :] * sak, mask=(rows < M) & (ks[None, :] < K), other=0.0)
            y = tl.load(b_ptr + ks[:, None] * sbk + cols * sbn, mask=(ks[:, None] < K) & (cols < N), other=0.0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
        tl.atomic_add(work_ptr + rows * N + cols, acc, mask=(rows < M) & (cols < N))
        left -= take
        tile += 1
        step = 0


@triton.jit
def _finish(
    work_ptr, c_ptr, bias_ptr, M, N, scm, scn, BIAS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """c from the sums, by any strides."""
    across = tl.cdiv(N, BN)
    pid = tl.program_id(0)
    rows = (pid // across * BM + tl.arange(0, BM)).to(tl.int64)[:, None]
    cols = (pid % across * BN + tl.arange(0, BN)).to(tl.int64)[None, :]
    inside = (rows < M) & (cols < N)
    value = tl.load(work_ptr + rows * N + cols, mask=inside, other=0.0)
    if BIAS_RELU:
        value += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        value = tl.maximum(value, 0.0)
    tl.store(c_ptr + rows * scm + cols * scn, value.to(c_ptr.dtype.element_ty), mask=inside)


def _run(a, b, bias, out):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    work = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    _stream[(WORKERS,)](a, b, work, M, N, K, *a.stride(), *b.stride())
    bm, bn = SPREAD
    grid = (triton.cdiv(M, bm) * triton.cdiv(N, bn),)
    fused = bias is not None
    _finish[grid](
        work, out, bias if fused else work, M, N, *out.stride(), BIAS_RELU=fused, BM=bm, BN=bn
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _run(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _run(a, b, bias, out)
