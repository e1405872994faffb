# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""C = A B with persistent programs; bias and ReLU are fused."""

import torch
import triton
import triton.language as tl

# Two for each SM of an H100 or H200.
PROGRAMS = 264


def _config(bm, bn, bk, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
    _config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    small_enough = [c for c in configs if c.kwargs["BM"] <= limit and c.kwargs["BN"] <= limit]
    return small_enough if len(small_enough) > 0 else configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    group = tile // (GROUP * tiles_n)
    rest = tile % (GROUP * tiles_n)
    top = group * GROUP
    height = tl.minimum(tiles_m - top, GROUP)
    return (top + rest % height) * BM, (rest // height) * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    EPILOGUE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    full = K // BK * BK
    ks = tl.arange(0, BK).to(tl.int64)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BM, BN, GROUP)
        rows = (m + tl.arange(0, BM)).to(tl.int64)
        cols = (n + tl.arange(0, BN)).to(tl.int64)
        row_ok = rows[:, None] < M
        col_ok = cols[None, :] < N
        a_base = a_ptr + rows[:, None] * sam
        b_base = b_ptr + cols[None, :] * sbn
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, full, BK):
            kk = ks + k
            a = tl.load(a_base + kk[None, :] * sak, mask=row_ok, other=0.0)
            b = tl.load(b_base + kk[:, None] * sbk, mask=col_ok, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if full < K:
            kk = ks + full
            a = tl.load(a_base + kk[None, :] * sak, mask=row_ok & (kk[None, :] < K), other=0.0)
            b = tl.load(b_base + kk[:, None] * sbk, mask=col_ok & (kk[:, None] < K), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if EPILOGUE:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc += bias[None, :]
            acc = tl.where(acc > 0.0, acc, 0.0)
        c_ptrs = c_ptr + rows[:, None] * scm + cols[None, :] * scn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def run(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)

    def grid(meta):
        return (min(PROGRAMS, triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)

    persistent_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue
    )
    return out


def matmul(a, b, *, out=None):
    """a @ b."""
    return run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    """relu(a @ b + bias)."""
    return run(a, b, bias, out, True)
