# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | The `pre_hook` of the configs, `_clear`, runs `args["c_ptr"].zero_()`; LANGUAGE.md permits a `pre_hook` to set a `block_shape` only, so the file is POLICY in all cases. The workspace should be allocated by `torch.zeros` in `_launch` and cleared between trials by `reset_to_zero` (the numbers themselves would be right).
"""Matrix product whose programs share K where tiles alone are too few for the GPU.

With one part the kernel stores its tile, epilogue included. With several, each adds its fp32 sums to a workspace
by atomics, and a second kernel applies the epilogue.
"""

import torch
import triton
import triton.language as tl


def _clear(args):
    """Several parts add to what they find, so the workspace is empty before every run, trials included."""
    if args["PARTS"] > 1:
        args["c_ptr"].zero_()


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=_clear)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, part_k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c, or the sums of it over one of the parts of K, each part_k long but for the last."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    low = tl.program_id(1) * part_k
    high = min(low + part_k, K)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = low + tl.arange(0, BLOCK_K)
    row_ok, col_ok = (rows < M)[:, None], (cols < N)[None, :]
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(low, high, BLOCK_K):
        present = k - low + ks < high
        a = tl.load(a_ptrs, mask=row_ok & present[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=col_ok & present[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    if PARTS > 1:
        tl.atomic_add(c_ptrs, acc, mask=row_ok & col_ok, sem="relaxed")
    else:
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """c from the complete sums, (M, N) in fp32."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = (tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    sums = tl.load(sums_ptr + rows[:, None] * N + cols[None, :], mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = 1
    while parts < 16 and 2 * parts * triton.cdiv(M, 64) * triton.cdiv(N, 64) <= 132 and K >= 512 * parts:
        parts *= 2
    part_k = triton.cdiv(K, 64 * parts) * 64
    sums = out if parts == 1 else torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    matmul_kernel[grid](
        a, b, sums, bias, M, N, K, part_k, *a.stride(), *b.stride(), *sums.stride(),
        PARTS=parts, BIAS_RELU=bias_relu,
    )  # fmt: skip
    if parts > 1:
        finish_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 128),)](
            sums, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, BLOCK_M=16, BLOCK_N=128
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
