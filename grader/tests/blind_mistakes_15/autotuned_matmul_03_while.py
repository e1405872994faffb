# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In matmul_kernel `left = K - step` subtracts the number of the step instead of the elements done, so the masks of the last step let lanes past K through; it should be K - step * BLOCK_K. Wrong only where K is larger than BLOCK_K and no multiple of it.
"""Autotuned matmul."""

import torch
import triton
import triton.language as tl


def cfg(m, n, k, stages, warps):
    return triton.Config({"BM": m, "BN": n, "BK": k, "GM": 8}, num_stages=stages, num_warps=warps)


CONFIGS = [cfg(128, 256, 64, 3, 8), cfg(256, 128, 64, 4, 8), cfg(128, 128, 32, 4, 8), cfg(64, 128, 32, 4, 4), cfg(64, 64, 64, 2, 4)]


def prune(configs, named_args, **kwargs):
    is32 = named_args["a"].dtype == torch.float32
    side = min(named_args["M"], named_args["N"])
    good = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= side and not is32]
    return good or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def mm(a, b, c, bias, M, N, K, sam, sak, sbk, sbn, scm, scn, EPILOGUE: tl.constexpr,
       BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    g = pid // (GM * nn)
    h = tl.minimum(nm - g * GM, GM)
    w = pid % (GM * nn)
    pm = g * GM + w % h
    pn = w // h

    rm = pm.to(tl.int64) * BM + tl.arange(0, BM)
    rn = pn.to(tl.int64) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK).to(tl.int64)
    pa = a + rm[:, None] * sam + rk[None, :] * sak
    pb = b + rk[:, None] * sbk + rn[None, :] * sbn
    jump = tl.full((1, 1), BK, tl.int64)

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    step = 0
    while step * BK < K:
        left = K - step
        ta = tl.load(pa, mask=(rm[:, None] < M) & (rk[None, :] < left), other=0.0)
        tb = tl.load(pb, mask=(rk[:, None] < left) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(ta, tb, acc, input_precision="ieee")
        pa += jump * sak
        pb += jump * sbk
        step += 1

    if EPILOGUE:
        add = tl.load(bias + rn, mask=rn < N, other=0.0).to(tl.float32)
        acc += add[None, :]
        acc = tl.where(acc > 0, acc, 0.0)
    pc = c + rm[:, None] * scm + rn[None, :] * scn
    tl.store(pc, acc.to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def _go(a, b, bias, out, epilogue):
    (M, K), (_, N) = a.shape, b.shape
    out = out if out is not None else a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    mm[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue)
    return out


def matmul(a, b, *, out=None):
    return _go(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _go(a, b, bias, out, True)
