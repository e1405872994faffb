# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | `triton.Config({"BLOCK_M": 128, "BLOCK_N": 192, "BLOCK_K": 64}, ...)`: 192 is no power of 2, so `tl.arange(0, BLOCK_N)` in `matmul_kernel` does not compile ("arange's range must be a power of 2"). Shows where this config is tried: 16-bit inputs with M and N at least 192, and the codegen case; it should be 128 or 256.
"""Matrix product for Hopper: wide tiles, each summed by one program, the rest of the result by masks."""

import torch
import triton
import triton.language as tl

# Per config: BLOCK_M, BLOCK_N, BLOCK_K; stages; warps; bytes of shared memory for 16-bit operands.
CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=3, num_warps=8),  # 144 KB
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),  # 144 KB
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 192, "BLOCK_K": 64}, num_stages=4, num_warps=8),  # 160 KB
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=4, num_warps=8),  # 128 KB
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=4, num_warps=4),  # 96 KB
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=3, num_warps=4),  # 24 KB
]
GROUP_M = 8


def fitting(configs, named_args, **kwargs):
    """Only tiles that the result can fill, and of fp32 only those of 64 x 64."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP)
    within = tile % (GROUP * tiles_n)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def epilogue(sums, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    sums += bias.to(tl.float32)[None, :]
    return tl.where(sums < 0.0, 0.0, sums)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    row_offsets = rows.to(tl.int64)[:, None]
    col_offsets = cols.to(tl.int64)[None, :]
    a_block = a_ptr + row_offsets * stride_am + ks[None, :] * stride_ak
    b_block = b_ptr + ks[:, None] * stride_bk + col_offsets * stride_bn
    is_row = (rows < M)[:, None]
    is_col = (cols < N)[None, :]

    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    tl.assume(K > 0)
    for step in tl.range(0, tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_block, mask=is_row & (ks < left)[None, :], other=0.0)
        b = tl.load(b_block, mask=(ks < left)[:, None] & is_col, other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_block += BLOCK_K * stride_ak
        b_block += BLOCK_K * stride_bk

    if BIAS_RELU:
        sums = epilogue(sums, bias_ptr, cols, N)
    c_block = c_ptr + row_offsets * stride_cm + col_offsets * stride_cn
    tl.store(c_block, sums.to(c_ptr.dtype.element_ty), mask=is_row & is_col)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(),
        BIAS_RELU=bias_relu, GROUP=GROUP_M,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for matrices of one dtype and any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
