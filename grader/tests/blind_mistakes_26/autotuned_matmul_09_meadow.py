# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | the numbers are right, but `new_result` (used by _launch where no `out` is given) allocates (N, M) and returns its transpose if a is column-major (a.stride(0) == 1 and a.stride(1) > 1), so matmul and matmul_bias_relu without `out` and with a transposed a return a matrix that is not contiguous (M, N > 1); it should always be torch.empty((M, N)), a new contiguous matrix
"""c = a @ b by tiles, and relu(a @ b + bias) in the same pass."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One tile shape, with its pipeline and its warps."""
    shape = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(shape, num_stages=num_stages, num_warps=num_warps)


SHAPES = (
    (128, 256, 64, 4, 8),
    (128, 256, 32, 4, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 3, 4),
)
CONFIGS = [_config(*shape) for shape in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c: GROUP_M rows of tiles, column by column."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    group = tile // per_group
    top = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    inner = tile - group * per_group
    column = inner // height
    row = top + inner - column * height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c for each program. i counts rows of a and c, j columns of b and c, k what is summed."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m + tl.arange(0, BLOCK_M)
    j = n + tl.arange(0, BLOCK_N)
    i_inside = i[:, None] < M
    j_inside = j[None, :] < N
    i_wide = i.to(tl.int64)[:, None]
    j_wide = j.to(tl.int64)[None, :]
    a_rows = a_ptr + i_wide * stride_am
    b_cols = b_ptr + j_wide * stride_bn

    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
        x = tl.load(a_rows + k[None, :] * stride_ak, mask=i_inside & (k[None, :] < K), other=0.0)
        y = tl.load(b_cols + k[:, None] * stride_bk, mask=j_inside & (k[:, None] < K), other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)

    spots = c_ptr + i_wide * stride_cm + j_wide * stride_cn
    tl.store(spots, sums.to(c_ptr.dtype.element_ty), mask=i_inside & j_inside)


def new_result(a, b):
    """Memory for a @ b, its elements in the order of those of a."""
    M, N = a.shape[0], b.shape[1]
    if a.stride(0) == 1 and a.stride(1) > 1:
        return torch.empty((N, M), device=a.device, dtype=a.dtype).T
    return torch.empty((M, N), device=a.device, dtype=a.dtype)


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = new_result(a, b)
    M, K = a.shape
    N = b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias,
        M, N, K,
        a.stride(0), a.stride(1),
        b.stride(0), b.stride(1),
        out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, with fp32 sums that are rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), rounded once."""
    return _launch(a, b, bias, out, bias_relu=True)
