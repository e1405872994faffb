# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | _launch: the partial sums `part` are allocated with dtype=a.dtype, so for fp16 and bf16 each slice's fp32 sum is rounded to 16 bits before the slices (and the bias) are added; fp32 is right, and 16-bit matmul with one slice (K < 64) too; in 16 bits digits are lost where K >= 64 splits, and in matmul_bias_relu for every K (the result is rounded twice; exact whole-number cases differ; a partial sum beyond 65504 becomes inf in fp16); should be dtype=torch.float32
"""Matrix product in two kernels: slices of K, each program one tile of one slice, and then their sum."""

import torch
import triton
import triton.language as tl

ELEMENTS = 1024


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    return (first + tile % in_group % height) * BLOCK_M, tile % in_group // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, depth,
    stride_am, stride_ak, stride_bk, stride_bn, stride_ps, stride_pm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Slice s of K has the numbers from s * depth to (s + 1) * depth, as far as they exist."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok, col_ok = rows[:, None] < M, cols[None, :] < N
    a_row = a_ptr + rows[:, None] * stride_am
    b_col = b_ptr + cols[None, :] * stride_bn

    start = part * depth
    stop = tl.minimum(start + depth, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        x = tl.load(a_row + ks[None, :] * stride_ak, mask=row_ok & (ks[None, :] < stop), other=0.0)
        y = tl.load(b_col + ks[:, None] * stride_bk, mask=(ks[:, None] < stop) & col_ok, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")

    at = part_ptr + part.to(tl.int64) * stride_ps + rows[:, None] * stride_pm + cols[None, :]
    tl.store(at, acc.to(part_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def add_kernel(
    part_ptr, c_ptr, bias_ptr, count, N, slices, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program adds the slices of BLOCK elements; `count` of them make a slice."""
    numbers = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = numbers < count
    row = numbers // N
    col = numbers % N
    at = part_ptr + numbers
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(0, slices):
        total += tl.load(at, mask=exists, other=0.0).to(tl.float32)
        at += count
    if BIAS_RELU:
        total += tl.load(bias_ptr + col, mask=exists, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    slices = max(1, min(4, K // 32))
    depth = triton.cdiv(K, slices)
    part = torch.empty((slices, M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), slices

    matmul_kernel[grid](
        a, b, part, M, N, K, depth,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), part.stride(0), part.stride(1),
    )  # fmt: skip
    add_kernel[(triton.cdiv(M * N, ELEMENTS),)](
        part, out, bias, M * N, N, slices, out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, BLOCK=ELEMENTS,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b of matrices with any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the kernel that adds the slices has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
