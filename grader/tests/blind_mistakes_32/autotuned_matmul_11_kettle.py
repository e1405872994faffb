# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product; a small result with a long K is summed by several programs for each tile."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


def splits_of(M, N, K):
    """Programs for each tile: more than one only where there are few tiles and much to sum."""
    if K < 256 or triton.cdiv(M, 64) * triton.cdiv(N, 64) > 32:
        return 1
    return min(8, K // 128)


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


# What a trial has added must not count in the next one.
@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    reset_to_zero=["c_ptr"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); with SPLITS > 1 c is fp32 and 0, and the steps of K are dealt out in turn."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.program_id(axis=1) * BLOCK_K, K, SPLITS * BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=row_ok & (ks < K)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(ks < K)[:, None] & col_ok,
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    if SPLITS > 1:
        tl.atomic_add(c_ptrs, acc, mask=row_ok & col_ok)
    else:
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def finish_kernel(sums_ptr, c_ptr, bias_ptr, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr):
    """c = sums, or relu(sums + bias), rounded to the dtype of c; a program owns BLOCK columns of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = (tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    x = tl.load(sums_ptr + row * N + cols, mask=cols < N, other=0.0)
    if BIAS_RELU:
        x += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.maximum(x, 0.0)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, x.to(c_ptr.dtype.element_ty), mask=cols < N)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    splits = splits_of(M, N, K)
    target = out if splits == 1 else torch.zeros((M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), splits)](
        a, b, target, bias, M, N, K,
        *a.stride(), *b.stride(), *target.stride(),
        BIAS_RELU=bias_relu, SPLITS=splits,
    )  # fmt: skip
    if splits > 1:
        block = 256
        finish_kernel[(M, triton.cdiv(N, block))](
            target, out, bias, N, *out.stride(), BIAS_RELU=bias_relu, BLOCK=block
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
