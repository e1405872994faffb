# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) acc is set to zero once, before the loop over the tiles of a program; must be zeroed for each tile. Shows where there are more tiles than programs: each later tile of a program also holds the sums of its earlier ones. (2) in the epilogue acc is rounded to the dtype of c before the bias is added; must be added in fp32 and rounded once. Shows in matmul_bias_relu in fp16 and bf16, in the last digit.
"""Matrix product by persistent programs: as many as there are SMs, each walks over its tiles."""

import torch
import triton
import triton.language as tl

PROGRAMS = 16  # where there is no GPU to ask


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 64, 64, 3, 4),
    _config(32, 32, 32, 3, 2),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        row_mask = rows[:, None] < M
        col_mask = cols[None, :] < N
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_ptrs, mask=row_mask & (ks[None, :] < K - k), other=0.0)
            b = tl.load(b_ptrs, mask=col_mask & (ks[:, None] < K - k), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        c = acc.to(c_ptr.dtype.element_ty)
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
            c = tl.maximum(c + bias[None, :], 0.0)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, c.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    if a.is_cuda:
        programs = torch.cuda.get_device_properties(a.device).multi_processor_count
    else:
        programs = PROGRAMS
    grid = lambda meta: (  # noqa: E731
        min(programs, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),
    )
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
