# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) matmul_kernel stores at `c_ptr + rows[:, None] * stride_cm + cols[None, :]`: the column stride of out is missing; both functions are wrong where out's column stride is not 1 (transposed, every second column of a wider one), it should be `cols[None, :] * stride_cn`. (2) The epilogue of matmul_bias_relu rounds the sums first, `acc.to(bias.dtype) + bias[None, :]`, so fp16 and bf16 are rounded twice; it should add in fp32, `acc + bias.to(tl.float32)[None, :]`, and convert at the store.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 4, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_cols = tl.cdiv(N, BLOCK_N)
    n_rows = tl.cdiv(M, BLOCK_M)
    first_row = tile // (GROUP_M * n_cols) * GROUP_M
    rows_here = tl.minimum(n_rows - first_row, GROUP_M)
    inner = tile % (GROUP_M * n_cols)
    return (first_row + inner % rows_here) * BLOCK_M, inner // rows_here * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K).to(tl.int64)
    a_next = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_next = b_ptr + depth[:, None] * stride_bk + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        left = K - done
        a = tl.load(a_next, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        b = tl.load(b_next, mask=(depth[:, None] < left) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_next += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_next += BLOCK_K * tl.cast(stride_bk, tl.int64)

    result = acc.to(c_ptr.dtype.element_ty)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        shifted = acc.to(bias.dtype) + bias[None, :]
        result = tl.maximum(shifted, 0.0).to(c_ptr.dtype.element_ty)
    c_tile = c_ptr + rows[:, None] * stride_cm + cols[None, :]
    tl.store(c_tile, result, mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
