# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product by a fixed number of programs, each of which walks over several tiles."""

import torch
import triton
import triton.language as tl

PROGRAMS = 264  # two for each SM of a large card

CONFIGS = []
for _m, _n, _k, _stages, _warps in (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (64, 128, 64, 3, 4),
    (64, 64, 32, 3, 4),
):
    CONFIGS.append(
        triton.Config({"BLOCK_M": _m, "BLOCK_N": _n, "BLOCK_K": _k, "GROUP_M": 8}, num_stages=_stages, num_warps=_warps)
    )


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    widest = min(widest, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= widest] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def walking_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); a program owns every tile whose number is its own plus a multiple of the programs."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(axis=0)
    while tile < tiles:
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
        lanes = tl.arange(0, BLOCK_K).to(tl.int64)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            ka = (lanes + k)[None, :]
            kb = (lanes + k)[:, None]
            a = tl.load(a_ptr + rows * stride_am + ka * stride_ak, mask=(rows < M) & (ka < K), other=0.0)
            b = tl.load(b_ptr + kb * stride_bk + cols * stride_bn, mask=(kb < K) & (cols < N), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias, 0.0)
        c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))
        tile += tl.num_programs(axis=0)


def _walk(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def programs(meta):
        return (min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    walking_kernel[programs](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _walk(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _walk(a, b, bias, out, bias_relu=True)
