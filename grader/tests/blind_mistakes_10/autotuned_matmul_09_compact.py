# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `place` takes every group as GROUP_M rows of tiles high (`divmod` by G inside the group); the last group has min(tall - first, GROUP_M) rows. Shows as unwritten tiles in both functions where the tile rows are no multiple of 4 and there is more than one column of tiles. (2) the epilogue rounds the sum to the dtype of c before it adds the bias (`acc.to(c.dtype.element_ty) + shift`), so it is rounded twice; must add in fp32. Shows in matmul_bias_relu for fp16 and bf16.
"""Matrix product, compact."""

import torch
import triton
import triton.language as tl

G = tl.constexpr(4)
CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=3, num_warps=4),
    triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=4, num_warps=4),
    triton.Config({"BM": 32, "BN": 32, "BK": 32}, num_stages=4, num_warps=4),
]


def suited(configs, args, **kwargs):
    """No config whose tile is larger than the result."""
    most = min(args["M"], args["N"], 64 if args["a"].dtype == torch.float32 else 256)
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= most] or configs[-1:]


@triton.jit
def place(tile, N, BM: tl.constexpr, BN: tl.constexpr):
    """Groups of G rows of tiles, each walked column by column."""
    wide = tl.cdiv(N, BN)
    first = tile // (G * wide) * G
    within = tile % (G * wide)
    return (first + within % G) * BM, within // G * BN


@triton.autotune(CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": suited})
@triton.jit
def kernel(
    a, b, c, bias, M, N, K, am, ak, bk, bn, cm, cn,
    FUSED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), N, BM, BN)
    i = m.to(tl.int64) + tl.arange(0, BM)[:, None]
    j = n.to(tl.int64) + tl.arange(0, BN)[None, :]
    k = tl.arange(0, BK).to(tl.int64)
    x = a + i * am + k[None, :] * ak
    y = b + k[:, None] * bk + j * bn
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        p = tl.load(x, (i < M) & (k[None, :] + at < K), 0.0)
        q = tl.load(y, (j < N) & (k[:, None] + at < K), 0.0)
        acc = tl.dot(p, q, acc, input_precision="ieee")
        x += BK * ak
        y += BK * bk
    result = acc.to(c.dtype.element_ty)
    if FUSED:
        shift = tl.load(bias + j, j < N, 0.0)
        result = tl.maximum(result + shift, 0.0).to(c.dtype.element_ty)
    tl.store(c + i * cm + j * cn, result, (i < M) & (j < N))


def run(a, b, bias, out, fused):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), FUSED=fused)
    return out


def matmul(a, b, *, out=None):
    """a @ b."""
    return run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    """relu(a @ b + bias)."""
    return run(a, b, bias, out, True)
