# labs/lab4_production_slice/layer_norm_linear.py | corner | prepare_kernel adds up `s` in fp32, before it is rounded by the store; README: "total sums rows of s after rounding". Then each rounding error of s is multiplied by x and not by x - mean. Shows in fp16 and bf16 where the mean of a row is large beside its deviation; fp32 is right.
"""LayerNorm + Linear in two launches: one for all that a row of x or of the weight needs, one for the product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def tile(block_m, block_n, block_k, *, stages, warps):
    """A candidate."""
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}, num_stages=stages, num_warps=warps
    )


TILES = [
    tile(128, 256, 64, stages=4, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 128, 64, stages=3, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Small tiles for fp32."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def prepare_output(
    j, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, s_ptr, total_ptr, shift_ptr, stride, K: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Row j of s, total and shift."""
    far = j.to(tl.int64)
    total = 0.0
    shift = 0.0
    for start in range(0, K, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_ptr + far * stride, cols, K)
        s = w * load(gamma_ptr, cols, K)
        total += tl.sum(s, axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, K), axis=0)
        store(s_ptr + far * K, cols, K, s)
    tl.store(total_ptr + j, total)
    tl.store(shift_ptr + j, shift + tl.load(bias_ptr + j).to(tl.float32))


@triton.autotune(configs=WARPS, key=["K"])
@triton.jit
def prepare_kernel(
    x_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    mean_ptr,
    rstd_ptr,
    s_ptr,
    total_ptr,
    shift_ptr,
    M,
    stride_x,
    stride_weight,
    eps,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The first M programs have the rows of x, the others those of the weight."""
    pid = tl.program_id(0)
    if pid < M:
        mean, rstd = mean_and_rstd(x_ptr + pid.to(tl.int64) * stride_x, eps, K, BLOCK)
        tl.store(mean_ptr + pid, mean)
        tl.store(rstd_ptr + pid, rstd)
    else:
        prepare_output(
            pid - M, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, s_ptr, total_ptr, shift_ptr, stride_weight, K, BLOCK
        )


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    x_ptr,
    s_ptr,
    mean_ptr,
    rstd_ptr,
    total_ptr,
    shift_ptr,
    y_ptr,
    M,
    N,
    K,
    stride_x,
    stride_y,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y = rstd * (x @ s.T - mean * total) + shift."""
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    x_rows = x_ptr + m.to(tl.int64)[:, None] * stride_x
    s_rows = s_ptr + n.to(tl.int64)[:, None] * K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        a = tl.load(x_rows + k, mask=(m[:, None] < M) & (k < K), other=0.0)
        b = tl.load(s_rows + k, mask=(n[:, None] < N) & (k < K), other=0.0)
        acc = tl.dot(a, tl.trans(b), acc, input_precision="ieee")
    mean = load(mean_ptr, m, M)[:, None]
    rstd = load(rstd_ptr, m, M)[:, None]
    total = load(total_ptr, n, N)[None, :]
    shift = load(shift_ptr, n, N)[None, :]
    y = (acc - mean * total) * rstd + shift
    store_to = y_ptr + m.to(tl.int64)[:, None] * stride_y + n[None, :]
    tl.store(store_to, y.to(y_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of x, then Linear."""
    M, K = x.shape
    N, _ = weight.shape
    if out is None:
        out = x.new_empty((M, N))
    s = x.new_empty((N, K))
    mean, rstd = x.new_empty((2, M), dtype=torch.float32)
    total, shift = x.new_empty((2, N), dtype=torch.float32)
    on(prepare_kernel, x)[(M + N,)](
        x, weight, gamma, beta, bias, mean, rstd, s, total, shift, M, x.stride(0), weight.stride(0), eps,
        K=K, BLOCK=block_of(K),
    )  # fmt: skip
    on(product_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))](
        x, s, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
