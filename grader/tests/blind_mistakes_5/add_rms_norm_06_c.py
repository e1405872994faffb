# gpu-programming/triton-kernels/add_rms_norm.py | honest | Right; running pointers, positional masks, fma, the norm of the sum before rounding, which the README allows; configs by a comprehension.
"""Add + RMSNorm, running pointers, norm of the sum before rounding."""
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"TILE": 1024 << k}, num_warps=min(16, 2 << k)) for k in range(5)]


def fitting(configs, named_args, **kwargs):
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [c for c in configs if c.kwargs["TILE"] in (size // 2, size)]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    X, R, W, O, T, n_cols, ld_x, ld_r, ld_o, ld_t, eps, TILE: tl.constexpr, TILES: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, TILE)
    x, r, w, o, t = X + i * ld_x + k, R + i * ld_r + k, W + k, O + i * ld_o + k, T + i * ld_t + k
    left = n_cols
    ss = tl.zeros((TILE,), tl.float32)
    for _ in range(TILES):
        s = tl.load(x, k < left, 0.0).to(tl.float32) + tl.load(r, k < left, 0.0).to(tl.float32)
        ss = tl.fma(s, s, ss)
        x += TILE
        r += TILE
        left -= TILE
    g = tl.rsqrt(tl.sum(ss) / n_cols + eps)
    x -= TILES * TILE
    r -= TILES * TILE
    left = n_cols
    for _ in range(TILES):
        s = tl.load(x, k < left, 0.0).to(tl.float32) + tl.load(r, k < left, 0.0).to(tl.float32)
        tl.store(t, s.to(T.dtype.element_ty), k < left)
        tl.store(o, (s * g * tl.load(w, k < left, 0.0).to(tl.float32)).to(O.dtype.element_ty), k < left)
        x += TILE
        r += TILE
        w += TILE
        o += TILE
        t += TILE
        left -= TILE


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = x.shape
    out = x.new_empty((m, n)) if out is None else out
    total = x.new_empty((m, n)) if total is None else total
    lds = [z.stride(0) for z in (x, residual, out, total)]
    add_rms_norm_kernel[(m,)](x, residual, weight, out, total, n, *lds, 1e-5)
    return out, total
