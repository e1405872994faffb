# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | slice_kernel, masks along K: `inside = ks < K` instead of ks < end; the length of a slice, cdiv(K, 3), is no multiple of BLOCK_K (32 or 64), so the last step of a slice also adds products that belong to the next slices, and these are counted twice or more. Wrong in both functions for every K except 1 and those where cdiv(K, 3) is a multiple of BLOCK_K (such as 96 with 32, 192). Should be ks < end
"""Matrix product in two kernels: slices of K are summed apart, and a second kernel adds the slices up in order."""

import torch
import triton
import triton.language as tl

# 1024 x 1024 in tiles of 128 x 128 is 64 programs; three slices of K give every multiprocessor work.
SLICES = 3


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}, num_stages=num_stages, num_warps=num_warps
    )


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
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
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def slice_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, length, stride_am, stride_ak, stride_bk, stride_bn, stride_ps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of one part: part[s] = a[:, start:end] @ b[start:end], in fp32, each part (M, N) and contiguous."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, 8)
    s = tl.program_id(axis=1)
    start = s * length
    end = tl.minimum(start + length, K)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        inside = ks < K
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows < M)[:, None] & inside[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=inside[:, None] & (cols < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    at = part_ptr + s.to(tl.int64) * stride_ps + rows[:, None] * N + cols[None, :]
    tl.store(at, acc, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def gather_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_ps, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The sum of the parts, with the epilogue, in the dtype of the result."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, WIDE)
    rows = ((pid // across) * HIGH + tl.arange(0, HIGH)).to(tl.int64)
    cols = ((pid % across) * WIDE + tl.arange(0, WIDE)).to(tl.int64)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    at = part_ptr + rows[:, None] * N + cols[None, :]
    total = tl.zeros((HIGH, WIDE), dtype=tl.float32)
    for _ in tl.static_range(PARTS):
        total += tl.load(at, mask=mask, other=0.0)
        at += stride_ps
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, total.to(c_ptr.dtype.element_ty), mask=mask
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = torch.empty((SLICES, M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), SLICES)  # noqa: E731
    slice_kernel[grid](
        a, b, parts, M, N, K, triton.cdiv(K, SLICES), *a.stride(), *b.stride(), parts.stride(0)
    )
    gather_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 128),)](
        parts, out, bias, M, N, parts.stride(0), out.stride(0), out.stride(1),
        PARTS=SLICES, BIAS_RELU=bias_relu, HIGH=16, WIDE=128,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32, always in the same order."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
