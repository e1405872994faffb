# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | in join_kernel, `tl.sum(parts, axis=1)` sums the (SPLITS, WIDTH) block over its columns and leaves SPLITS = 4 values where WIDTH = 128 are needed: adding the bias (matmul_bias_relu) or storing to 128 pointers (matmul) does not compile, shapes (4) and (128) do not fit, in every case; it should be `tl.sum(parts, axis=0)`
"""Matrix product with a fixed split of K: each slice stores sums of its own, and a second kernel joins them.

No atomics: the slices are added in one order, so that two runs give the same bits.
"""

import itertools

import torch
import triton
import triton.language as tl

SPLITS = 4
WIDTH = 128

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": 64}, num_stages=3, num_warps=8 if bm * bn > 8192 else 4)
    for bm, bn in itertools.product((128, 64), (256, 128, 64))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    sides = [named_args["M"], named_args["N"]]
    if named_args["a_ptr"].dtype == torch.float32:
        sides.append(64)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(sides)] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def slice_kernel(
    a_ptr, b_ptr, parts_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    SPLITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """parts[s] = the product over steps s, s + SPLITS, s + 2 SPLITS, ... along K; parts is (SPLITS, M, N), fp32."""
    tile = tl.program_id(0)
    s = tl.program_id(1)
    across = tl.cdiv(N, BLOCK_N)
    rows = (tile // across * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tile % across * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(s * BLOCK_K, K, SPLITS * BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        x = tl.load(a_rows + ks[None, :] * stride_ak, mask=(rows < M)[:, None] & (ks < K)[None, :], other=0.0)
        y = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks < K)[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    # A slice without a step stores zeros.
    part_rows = s.to(tl.int64) * M + rows
    tl.store(
        parts_ptr + part_rows[:, None] * N + cols[None, :], acc, mask=(rows < M)[:, None] & (cols < N)[None, :]
    )


@triton.jit
def join_kernel(
    parts_ptr, bias_ptr, c_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """WIDTH columns of one row of c: the sum of the slices, and the epilogue."""
    pieces = tl.cdiv(N, WIDTH)
    pid = tl.program_id(0)
    row = (pid // pieces).to(tl.int64)
    cols = (pid % pieces * WIDTH + tl.arange(0, WIDTH)).to(tl.int64)
    part_rows = tl.arange(0, SPLITS).to(tl.int64) * M + row
    parts = tl.load(parts_ptr + part_rows[:, None] * N + cols[None, :], mask=(cols < N)[None, :], other=0.0)
    total = tl.sum(parts, axis=1)
    if BIAS_RELU:
        total += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=cols < N)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    parts = torch.empty((SPLITS, M, N), device=a.device, dtype=torch.float32)


    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    slice_kernel[lambda meta: (tiles(meta), SPLITS)](
        a, b, parts, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), SPLITS=SPLITS
    )
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    join_kernel[(M * triton.cdiv(N, WIDTH),)](
        parts, bias, out, M, N, out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, SPLITS=SPLITS, WIDTH=WIDTH, num_warps=1,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
