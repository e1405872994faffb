# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | in `matmul_kernel`, epilogue: the bias is loaded through `cols`, which is already a row of shape (1, BLOCK_N), and `bias[None, :]` makes it (1, 1, BLOCK_N); the sums become (1, BLOCK_M, BLOCK_N), and the store to pointers of shape (BLOCK_M, BLOCK_N) fails (Cannot broadcast, rank mismatch); every call of matmul_bias_relu fails, matmul is right; it should be `acc + bias`
"""Matrix product with tl.swizzle2d for the order of the tiles."""

import torch
import triton
import triton.language as tl


def config(m, n, k, stages, warps, group=8):
    blocks = dict(BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP=group)
    return triton.Config(blocks, num_stages=stages, num_warps=warps)


CONFIGS = [
    config(128, 256, 64, 3, 8),
    config(256, 128, 64, 3, 8, group=4),
    config(128, 128, 64, 4, 8),
    config(128, 64, 64, 4, 4),
    config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    cap = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    smaller_side = min(named_args["M"], named_args["N"])
    fit = []
    for candidate in configs:
        side = max(candidate.kwargs["BLOCK_M"], candidate.kwargs["BLOCK_N"])
        if side <= cap and side <= smaller_side:
            fit.append(candidate)
    return fit or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    i, j = tl.swizzle2d(pid // across, pid % across, down, across, GROUP)

    rows = (i * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    cols = (j * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    k_row = tl.arange(0, BLOCK_K)[None, :].to(tl.int64)
    k_col = tl.arange(0, BLOCK_K)[:, None].to(tl.int64)
    row_exists = rows < M
    col_exists = cols < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a_tile = tl.load(
            a_ptr + rows * stride_am + (k + k_row) * stride_ak, mask=row_exists & (k_row < K - k), other=0.0
        )
        b_tile = tl.load(
            b_ptr + (k + k_col) * stride_bk + cols * stride_bn, mask=col_exists & (k_col < K - k), other=0.0
        )
        acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=col_exists, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_tile = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b with fp32 sums."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), the bias added to the fp32 sums."""
    return _launch(a, b, bias, out, bias_relu=True)
