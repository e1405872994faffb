# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) acc is set to 0 once before the loop over tiles and never again, so the second tile of a program holds the first one's sums as well; it must be set to 0 for each tile; shows with more than 16 tiles; (2) the operands are converted to fp16 before tl.dot; they must keep their dtype; shows in fp32 (and bf16)
"""Persistent matmul for a small GPU: as many programs as it has SMs, each takes every 16th tile."""

import torch
import triton
import triton.language as tl

SMS = 16  # RTX 3050 laptop; more programs than that only wait


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 4},
        num_stages=num_stages,
        num_warps=num_warps,
    )


# 99 KB of shared memory is all I have here.
CONFIGS = [
    _config(128, 128, 32, 3, 8),
    _config(128, 64, 32, 3, 4),
    _config(64, 64, 32, 4, 4),
    _config(32, 32, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    size = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        size = min(size, 64)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias)."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = tl.arange(0, BLOCK_M).to(tl.int64) + m
        cols = tl.arange(0, BLOCK_N).to(tl.int64) + n
        for k in range(0, K, BLOCK_K):
            a = tl.load(
                a_ptr + rows[:, None] * stride_am + (ks + k)[None, :] * stride_ak,
                mask=(rows < M)[:, None] & (ks + k < K)[None, :],
                other=0.0,
            )
            b = tl.load(
                b_ptr + (ks + k)[:, None] * stride_bk + cols[None, :] * stride_bn,
                mask=(ks + k < K)[:, None] & (cols < N)[None, :],
                other=0.0,
            )
            # 16 bits for the tensor cores, the sum stays in fp32
            acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc)
        c = acc
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            c = tl.maximum(acc + bias[None, :], 0.0)
        tl.store(
            c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
            c.to(c_ptr.dtype.element_ty),
            mask=(rows < M)[:, None] & (cols < N)[None, :],
        )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (min(SMS, tiles(meta)),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
