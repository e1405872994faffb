# gpu-programming/triton-kernels/add_rms_norm.py | error | keep_fitting keeps only configs whose TILE is exactly the next power of two of n_cols: for rows below 513 or above 16384 columns no config is left and the autotuner raises; it must clamp the size to the widths that exist.
"""add_rms_norm with 2-D tiles: ROWS rows at once while n_cols is small. Autotuned over the width and the warps."""

import torch
import triton
import triton.language as tl

SHAPES = [(4, 1024, 8), (2, 2048, 8), (1, 2048, 4), (1, 4096, 8), (1, 8192, 16), (1, 16384, 32)]
CONFIGS = [triton.Config({"ROWS": r, "TILE": t}, num_warps=w) for r, t, w in SHAPES]


def keep_fitting(configs, named_args, **kwargs):
    want = triton.next_power_of_2(named_args["n_cols"])
    return [c for c in configs if c.kwargs["TILE"] == want]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": keep_fitting})
@triton.jit
def kernel(
    x_ptr, r_ptr, w_ptr, o_ptr, t_ptr, n_rows, n_cols, x_s, r_s, o_s, t_s, inv_n, eps,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = tl.arange(0, TILE)[None, :]
    sum_sq = tl.zeros((ROWS, 1), dtype=tl.float32)
    for c in range(0, n_cols, TILE):
        j = c + cols
        ok = (i < n_rows) & (j < n_cols)
        a = tl.load(x_ptr + i * x_s + j, mask=ok, other=0.0).to(tl.float32)
        b = tl.load(r_ptr + i * r_s + j, mask=ok, other=0.0).to(tl.float32)
        s = a + b
        sum_sq += tl.sum(s * s, axis=1, keep_dims=True)
    scale = tl.rsqrt(sum_sq * inv_n + eps)
    for c in range(0, n_cols, TILE):
        j = c + cols
        ok = (i < n_rows) & (j < n_cols)
        a = tl.load(x_ptr + i * x_s + j, mask=ok, other=0.0).to(tl.float32)
        b = tl.load(r_ptr + i * r_s + j, mask=ok, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + j, mask=j < n_cols, other=0.0).to(tl.float32)
        s = a + b
        tl.store(t_ptr + i * t_s + j, s.to(t_ptr.dtype.element_ty), mask=ok)
        tl.store(o_ptr + i * o_s + j, (s * scale * w).to(o_ptr.dtype.element_ty), mask=ok)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    n_rows, n_cols = x.shape
    kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1.0 / n_cols, 1e-5,
    )  # fmt: skip
    return out, total
