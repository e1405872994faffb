# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | the sum is kept as (BLOCK_N, BLOCK_M), and tl.reshape to (BLOCK_M, BLOCK_N) shuffles its elements; it must be tl.trans(acc); shows in every case of both functions but 1 x 1
"""x @ w with the weight as the left operand of the tensor cores (swap of operands), fused with bias and relu."""

import torch
import triton
import triton.language as tl

# The narrow side of a tile belongs to the activations: few rows of a are common when a model answers one user.
TILES = {
    "wide": (64, 128, 64),
    "square": (64, 64, 64),
    "thin": (16, 64, 64),
    "small": (16, 32, 32),
}
CONFIGS = [
    triton.Config({"BLOCK_M": t[0], "BLOCK_N": t[1], "BLOCK_K": t[2]}, num_stages=3, num_warps=4)
    for t in TILES.values()
]


def fitting(configs, named_args, **kwargs):
    """What is no larger than the result, and of that nothing large for fp32."""
    most = 64 if named_args["x_ptr"].dtype == torch.float32 else 128
    m, n = min(named_args["M"], most), min(named_args["N"], most)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= m and c.kwargs["BLOCK_N"] <= n]
    return kept or configs[-1:]


@triton.jit
def load_tile(ptr, first, second, stride_first, stride_second, n_first, n_second):
    """A tile of any matrix with zeros outside; first and second are int64."""
    return tl.load(
        ptr + first[:, None] * stride_first + second[None, :] * stride_second,
        mask=(first[:, None] < n_first) & (second[None, :] < n_second),
        other=0.0,
    )


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, w_ptr, y_ptr, bias_ptr, M, N, K,
    stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = (tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        w = load_tile(w_ptr, cols, ks, stride_wn, stride_wk, N, K)  # (BLOCK_N, BLOCK_K)
        x = load_tile(x_ptr, ks, rows, stride_xk, stride_xm, K, M)  # (BLOCK_K, BLOCK_M)
        acc = tl.dot(w, x, acc, input_precision="ieee")
    # back to rows of y
    tile = tl.reshape(acc, (BLOCK_M, BLOCK_N))

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        tile = tl.maximum(tile + bias[None, :], 0.0)
    tl.store(
        y_ptr + rows[:, None] * stride_ym + cols[None, :] * stride_yn,
        tile.to(y_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


def _linear(x, w, bias, y, bias_relu):
    M, K, N = x.shape[0], x.shape[1], w.shape[1]
    if y is None:
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    linear_kernel[grid](x, w, y, bias, M, N, K, *x.stride(), *w.stride(), *y.stride(), BIAS_RELU=bias_relu)
    return y


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, rounded once."""
    return _linear(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), in one kernel."""
    return _linear(a, b, bias, out, bias_relu=True)
