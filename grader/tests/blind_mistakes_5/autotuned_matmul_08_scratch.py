# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | The scratch of the partial sums, `a.new_empty((SPLITS, M, N))`, has the dtype of a: fp16 (bf16) partial sums are rounded (and may overflow) before they are added. It must be fp32. fp32 is right.
"""Matrix product with K split among programs: partial sums in a scratch tensor, added up by a second kernel."""

import torch
import triton
import triton.language as tl

SPLITS = 3

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """part[s] = the products of the steps s, s + SPLITS, s + 2 * SPLITS, ... along K; (SPLITS, M, N)."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(axis=0)
    split = tl.program_id(axis=1).to(tl.int64)
    rows = (tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(split * BLOCK_K, K, SPLITS * BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows * stride_am + ks[None, :] * stride_ak, mask=(rows < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols * stride_bn, mask=(ks[:, None] < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    here = part_ptr + split * M * N + rows * N + cols
    tl.store(here, acc.to(part_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def finish_kernel(
    part_ptr, bias_ptr, c_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):
    """c = the sum of the parts, or relu(sum + bias); a program has BLOCK columns of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in range(SPLITS):
        total += tl.load(part_ptr + (s * M + row) * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    if BIAS_RELU:
        total += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=cols < N)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    scratch = a.new_empty((SPLITS, M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), SPLITS)  # noqa: E731
    partial_kernel[grid](a, b, scratch, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), SPLITS=SPLITS)
    finish_kernel[(M, triton.cdiv(N, 256))](
        scratch, bias, out, M, N, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, SPLITS=SPLITS, BLOCK=256
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
