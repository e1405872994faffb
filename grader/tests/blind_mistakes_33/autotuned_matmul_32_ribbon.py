# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Persistent matrix product with one loop only: its turns are all steps along K of all tiles of a program.

Between two tiles the loop does not end, so the loads of the next tile may begin while the last one is stored.
"""

import torch
import triton
import triton.language as tl

WORKERS = 132


def _config(bm, bn, bk, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
    _config(32, 32, 32, 3, 2),
]


def _worthwhile(configs, named_args, **kwargs):
    most = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-2:-1] if most >= 64 else configs[-1:]
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= most] or configs[-1:]


@triton.jit
def _where(tile, down, across, GROUP: tl.constexpr):
    """Tile row and tile column of a tile, groups of GROUP tile rows one after the other."""
    group = tile // (GROUP * across)
    inside = tile % (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    return group * GROUP + inside % height, inside // height


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": _worthwhile})
@triton.jit
def _one_loop(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BIAS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Program p of P owns the tiles p, p + P, p + 2 P, ...; P is at most the number of tiles."""
    first = tl.program_id(0)
    programs = tl.num_programs(0)
    down = tl.cdiv(M, BM)
    across = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    mine = tl.cdiv(down * across - first, programs)

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for turn in range(mine * steps):
        step = turn % steps
        i, j = _where(first + turn // steps * programs, down, across, 8)
        rows = (i * BM + tl.arange(0, BM)).to(tl.int64)[:, None]
        cols = (j * BN + tl.arange(0, BN)).to(tl.int64)[None, :]
        ks = (step * BK + tl.arange(0, BK)).to(tl.int64)

        a_ok = (rows < M) & (ks[None, :] < K)
        b_ok = (ks[:, None] < K) & (cols < N)
        a = tl.load(a_ptr + rows * sam + ks[None, :] * sak, mask=a_ok, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * sbk + cols * sbn, mask=b_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

        if step == steps - 1:
            done = acc
            if BIAS_RELU:
                bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
                done = tl.maximum(done + bias.to(tl.float32), 0.0)
            c = c_ptr + rows * scm + cols * scn
            tl.store(c, done.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))
            acc = tl.zeros((BM, BN), dtype=tl.float32)


def _programs(M, N):
    """The grid as a function of the config."""
    return lambda meta: (min(WORKERS, triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)


def _apply(a, b, bias, out, bias_relu):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = _programs(M, N)
    _one_loop[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _apply(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _apply(a, b, bias, out, True)
