"""EXPECT PASS from layer_norm_linear_forward: block pointers, and s read transposed."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

TILES = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in (
        (128, 256, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (64, 64, 32, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """The last tile alone for fp32."""
    fp32 = named_args["x_ptr"].dtype == torch.float32
    return [config for config in configs if not fp32 or config is configs[-1]]


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr,
    n_rows, stride_x, stride_weight, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first n_rows programs: mean and rstd of a row of x. The rest: a row of the weight, scaled."""
    program = tl.program_id(axis=0)
    if program < n_rows:
        row = program.to(tl.int64)
        mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + row, mean)
        tl.store(rstd_ptr + row, rstd)
    else:
        out = (program - n_rows).to(tl.int64)
        weight_row = weight_ptr + out * stride_weight
        scaled_row = scaled_ptr + out * N_COLS
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        shift = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            weight = load(weight_row, cols, N_COLS)
            scaled = (load(gamma_ptr, cols, N_COLS) * weight).to(scaled_ptr.dtype.element_ty)
            store(scaled_row, cols, N_COLS, scaled)
            total += scaled.to(tl.float32)  # of what was rounded
            shift += load(beta_ptr, cols, N_COLS) * weight
        tl.store(total_ptr + out, tl.sum(total, axis=0))
        tl.store(shift_ptr + out, tl.sum(shift, axis=0) + tl.load(bias_ptr + out).to(tl.float32))


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift, one tile."""
    pid = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, 8)
    m, n = i * BLOCK_M, j * BLOCK_N
    x_block = tl.make_block_ptr(
        x_ptr,
        shape=(M, K),
        strides=(stride_x, 1),
        offsets=(m, 0),
        block_shape=(BLOCK_M, BLOCK_K),
        order=(1, 0),
    )
    s_block = tl.make_block_ptr(
        scaled_ptr, shape=(K, N), strides=(1, K), offsets=(0, n), block_shape=(BLOCK_K, BLOCK_N), order=(0, 1)
    )
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
        s = tl.load(s_block, boundary_check=(0, 1), padding_option="zero")
        product = tl.dot(x, s, product, input_precision="ieee")
        x_block = tl.advance(x_block, (0, BLOCK_K))
        s_block = tl.advance(s_block, (BLOCK_K, 0))

    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    y_block = tl.make_block_ptr(
        y_ptr,
        shape=(M, N),
        strides=(stride_y, 1),
        offsets=(m, n),
        block_shape=(BLOCK_M, BLOCK_N),
        order=(1, 0),
    )
    tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias."""
    M, K = x.shape
    N, _ = weight.shape
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(prepare_kernel, x)[(M + N,)](
        x, weight, gamma, beta, bias, scaled, mean, rstd, total, shift,
        M, x.stride(0), weight.stride(0), eps, N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[grid](x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
