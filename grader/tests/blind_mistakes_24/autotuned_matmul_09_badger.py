# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In place, odd groups walk their columns backwards with `col = across - col` instead of `across - 1 - col`: where M has more tile rows than GROUP_M (2), tile column 0 of each odd group stays unwritten. (2) In _launch the new tensor has `dtype=torch.float32` instead of `a.dtype`: without `out`, fp16 and bf16 inputs give an fp32 result.
"""Tiled matrix product; groups of tile rows are walked like a snake, to and fro.

Where one group ends at the right edge the next one starts there, so the columns of b are still in L2.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 2}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Not larger than the result, and for fp32 only the last one."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile of c."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    inside = tile % (GROUP_M * across)
    height = tl.minimum(down - group * GROUP_M, GROUP_M)
    row = group * GROUP_M + inside % height
    col = inside // height
    if group % 2 == 1:
        col = across - col
    return row * BLOCK_M, col * BLOCK_N


@triton.jit
def tile_of(ptr, i, j, size_i, size_j, stride_i, stride_j):
    """Elements (i, j) of a matrix, 0 where there are none."""
    exists = (i[:, None] < size_i) & (j[None, :] < size_j)
    return tl.load(ptr + i[:, None] * stride_i + j[None, :] * stride_j, mask=exists, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    result = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tile_of(a_ptr, rows, ks, M, K, stride_am, stride_ak)
        b = tile_of(b_ptr, ks, cols, K, N, stride_bk, stride_bn)
        result = tl.dot(a, b, acc=result, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        result = tl.maximum(result + bias[None, :], 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        result.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


def _launch(a, b, bias, out, bias_relu):
    assert a.shape[1] == b.shape[0], "inner sizes differ"
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=torch.float32) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32; the result goes to `out` where one is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), summed in fp32; the result goes to `out` where one is given."""
    return _launch(a, b, bias, out, bias_relu=True)
