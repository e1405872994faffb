# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | The heuristic EVEN_K tests `K % 32 == 0`, but BLOCK_K of most configs is 64: for K = 32, 96, 160, ... the loop loads past K without a mask. It must be `K % BLOCK_K == 0`.
"""Matrix product; a heuristic says whether the loop along K needs masks at all."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group, within = tile // (GROUP_M * tiles_n), tile % (GROUP_M * tiles_n)
    top = group * GROUP_M
    height = min(GROUP_M, tl.cdiv(M, BLOCK_M) - top)
    return (top + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % 32 == 0})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias). Rows and columns past the end wrap around, only the store is masked."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + (rows % M)[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + (cols % N)[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            left = K - k * BLOCK_K
            a = tl.load(a_ptrs, mask=ks[None, :] < left, other=0.0)
            b = tl.load(b_ptrs, mask=ks[:, None] < left, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        acc += tl.load(bias_ptr + cols % N).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[tiles](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
