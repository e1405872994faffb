# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `matmul_kernel`, `acc += tl.dot(a1, b1, acc, ...)` adds the accumulator twice, as `tl.dot` with a third argument already returns the sum; it should be `acc = tl.dot(a1, b1, acc, ...)`. What was summed so far is doubled in each turn of the loop, and there is at least one turn, so both functions are wrong for every K, also for K = 1 (twice the result).
"""Matrix product whose loop takes two short steps along K at a time; bias and ReLU on request."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, half, num_stages, num_warps):
    """A tile; `half` is what one tl.dot takes of K, and a turn of the loop has two of them."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "HALF": half, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 32, 4, 8),
    _config(128, 128, 32, 3, 8),
    _config(64, 128, 32, 4, 4),
    _config(128, 64, 32, 4, 4),
    _config(64, 64, 16, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """No tile larger than the result, and for fp32 none above 64 x 64."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    top = group * GROUP_M
    height = min(GROUP_M, tiles_m - top)
    rest = tile - top * tiles_n
    return (top + rest % height) * BLOCK_M, (rest // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HALF: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias), one tile a program."""
    tl.assume(K > 0)
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)[None, :]).to(tl.int64)
    has_row = rows < M
    has_col = cols < N

    across = tl.arange(0, HALF)[None, :]
    down = tl.arange(0, HALF)[:, None]
    a_ptrs = a_ptr + rows * stride_am + across * stride_ak
    b_ptrs = b_ptr + cols * stride_bn + down * stride_bk
    step_a = HALF * stride_ak
    step_b = HALF * stride_bk

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, 2 * HALF):
        left = K - k
        a0 = tl.load(a_ptrs, mask=has_row & (across < left), other=0.0)
        b0 = tl.load(b_ptrs, mask=has_col & (down < left), other=0.0)
        a1 = tl.load(a_ptrs + step_a, mask=has_row & (across + HALF < left), other=0.0)
        b1 = tl.load(b_ptrs + step_b, mask=has_col & (down + HALF < left), other=0.0)
        acc = tl.dot(a0, b0, acc, input_precision="ieee")
        acc += tl.dot(a1, b1, acc, input_precision="ieee")
        a_ptrs += 2 * step_a
        b_ptrs += 2 * step_b

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=has_col, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=has_row & has_col)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[tiles](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
