# labs/lab4_production_slice/layer_norm_linear.py | two mistakes | (1) In linear_kernel the masks along K compare k with K in every step while the pointers move on, so the last step of a K that is no multiple of BLOCK_K reads past the rows; it should compare k with K - step * BLOCK_K. (2) statistics_kernel is launched with N programs, as scale_kernel is; it needs M, one for each row of x.
import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def tile(block_m, block_n, block_k, *, stages, warps):
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


LARGE = [tile(128, n, 64, stages=3, warps=8) for n in (256, 128)]
TILES = [*LARGE, tile(64, 64, 32, stages=3, warps=4)]


def fitting(configs, named_args, **kwargs):
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    m, s = mean_and_rstd(x_ptr + r * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + r, m)
    tl.store(rstd_ptr + r, s)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, total_ptr, shift_ptr, stride_weight,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    shift = tl.zeros((BLOCK,), dtype=tl.float32)
    for j in range(0, N_COLS, BLOCK):
        c = j + tl.arange(0, BLOCK)
        w = load(weight_ptr + r * stride_weight, c, N_COLS)
        s = (w * load(gamma_ptr, c, N_COLS)).to(scaled_ptr.dtype.element_ty)
        store(scaled_ptr + r * N_COLS, c, N_COLS, s)
        total += s.to(tl.float32)
        shift += w * load(beta_ptr, c, N_COLS)
    tl.store(total_ptr + r, tl.sum(total, axis=0))
    tl.store(shift_ptr + r, tl.sum(shift, axis=0) + tl.load(bias_ptr + r).to(tl.float32))


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    a = x_ptr + rows * stride_x + k[None, :]
    b = scaled_ptr + cols * K + k[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK_K)):
        av = tl.load(a, mask=(rows < M) & (k[None, :] < K), other=0.0)
        bv = tl.load(b, mask=(cols < N) & (k[:, None] < K), other=0.0)
        product += tl.dot(av, bv, input_precision="ieee")
        a += BLOCK_K
        b += BLOCK_K
    y = product - tl.load(mean_ptr + rows, mask=rows < M, other=0.0) * tl.load(
        total_ptr + cols, mask=cols < N, other=0.0
    )
    y *= tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    y += tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    (M, K), N = x.shape, weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    each, B = (N,), block_of(K)
    on(statistics_kernel, x)[each](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=B)
    on(scale_kernel, x)[each](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=B
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
