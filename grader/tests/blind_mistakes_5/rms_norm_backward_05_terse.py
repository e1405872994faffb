# labs/lab4_production_slice/rms_norm_backward.py | honest | Right; block pointers for the weight's gradient, fma, one factor k for the whole row, other tile sizes and a rounded-down number of groups.
"""d RMSNorm: block pointers by tiles for the weight, plain offsets for dx."""
import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS, ROWS, COLS = 24, 32, 64


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(G, X, W, D, R, sg, sx, sd, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    G, X, D = G + i * sg, X + i * sx, D + i * sd
    xx = tl.zeros((BLOCK,), tl.float32)
    gx = tl.zeros((BLOCK,), tl.float32)
    for j in range(0, N_COLS, BLOCK):
        c = j + tl.arange(0, BLOCK)
        x = load(X, c, N_COLS)
        xx = tl.fma(x, x, xx)
        gx = tl.fma(load(G, c, N_COLS) * load(W, c, N_COLS), x, gx)
    r = tl.rsqrt(tl.sum(xx) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(R + i, r)
    k = tl.sum(gx) * r * r / N_COLS
    for j in range(0, N_COLS, BLOCK):
        c = j + tl.arange(0, BLOCK)
        store(D, c, N_COLS, r * (load(G, c, N_COLS) * load(W, c, N_COLS) - k * load(X, c, N_COLS)))


@triton.jit
def dw_kernel(G, X, R, S, n_rows, n_cols, sg, sx, TR: tl.constexpr, TC: tl.constexpr):
    c0, k, step = tl.program_id(0) * TC, tl.program_id(1), tl.num_programs(1) * TR
    c = c0 + tl.arange(0, TC)
    acc = tl.zeros((TC,), tl.float32)
    for r0 in range(k * TR, n_rows, step):
        r = r0 + tl.arange(0, TR)
        base = tl.cast(r0, tl.int64)
        g = tl.make_block_ptr(G + base * sg, (n_rows - r0, n_cols), (sg, 1), (0, c0), (TR, TC), (1, 0))
        x = tl.make_block_ptr(X + base * sx, (n_rows - r0, n_cols), (sx, 1), (0, c0), (TR, TC), (1, 0))
        gt = tl.load(g, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        xt = tl.load(x, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        acc += tl.sum(gt * xt * tl.load(R + r, mask=r < n_rows, other=0.0)[:, None], axis=0)
    store(S + k * n_cols, c, n_cols, acc)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    m, n = x.shape
    dx = x.new_empty((m, n)) if dx is None else dx
    dweight = x.new_empty((n,)) if dweight is None else dweight
    groups = max(1, min(GROUPS, m // ROWS))
    rstd = x.new_empty((m,), dtype=torch.float32)
    sums = x.new_empty((groups, n), dtype=torch.float32)
    ld = [t.stride(0) for t in (dy, x, dx)]
    on(dx_kernel, x)[(m,)](dy, x, weight, dx, rstd, *ld, eps, N_COLS=n, BLOCK=block_of(n))
    on(dw_kernel, x)[(triton.cdiv(n, COLS), groups)](dy, x, rstd, sums, m, n, *ld[:2], TR=ROWS, TC=COLS)
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    return RMSNorm.apply(x, weight, eps)
