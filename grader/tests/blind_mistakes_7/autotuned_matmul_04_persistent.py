# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | acc = tl.zeros(...) stands before the loop over tiles and is not reset for each tile, so each later tile of a program adds to the sums of the one before; it must be inside the loop. Only results with more tiles than PROGRAMS = 16 show it.
"""Persistent matmul: at most PROGRAMS programs, and each of them walks over tiles of the result."""

import torch
import triton
import triton.language as tl

PROGRAMS = 16

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=3, num_warps=4),
]


def exact_small(configs, named_args, **kwargs):
    """Only the last, small tile for fp32, which has no tensor cores."""
    return configs[-1:] if named_args["a_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": exact_small})
@triton.jit
def walk_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = (tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
        cols = (tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
        for k in range(0, K, BLOCK_K):
            left = K - k
            a = tl.load(a_ptr + rows * am + (k + ks)[None, :] * ak, mask=(rows < M) & (ks[None, :] < left), other=0.0)
            b = tl.load(b_ptr + (k + ks)[:, None] * bk + cols * bn, mask=(cols < N) & (ks[:, None] < left), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        result = acc
        if BIAS_RELU:
            result += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            result = tl.maximum(result, 0.0)
        tl.store(c_ptr + rows * cm + cols * cn, result.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def _product(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    walk_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _product(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _product(a, b, bias, out, True)
