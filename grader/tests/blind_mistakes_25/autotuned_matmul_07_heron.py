# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel's loop, `tl.dot(a_now, b_next, acc)` multiplies block i of A along K by block i + 1 of B (zeros after the last); it should be `tl.dot(a_now, b_now, acc)`. The product is wrong for every K, and 0 where K fits in one block.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue.

The loop over K fetches one step ahead: the tiles of the next step are requested before the current ones are multiplied.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# Two sets of operands are alive at a time, so BLOCK_K stays at 32.
CONFIGS = [
    _config(128, 128, 32, 3, 8),
    _config(128, 64, 32, 3, 4),
    _config(64, 128, 32, 3, 4),
    _config(64, 64, 32, 3, 4),
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
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    band = tile // (GROUP_M * across)
    top = band * GROUP_M
    height = tl.minimum(down - top, GROUP_M)
    rest = tile - band * (GROUP_M * across)
    return (top + rest % height) * BLOCK_M, (rest // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)

    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    depth = tl.arange(0, BLOCK_K).to(tl.int64)
    row_ok = rows < M
    col_ok = cols < N
    a_rows = a_ptr + rows * stride_am
    b_cols = b_ptr + cols * stride_bn

    # Prologue: the operands of step 0.
    a_now = tl.load(a_rows + depth[None, :] * stride_ak, mask=row_ok & (depth[None, :] < K), other=0.0)
    b_now = tl.load(b_cols + depth[:, None] * stride_bk, mask=col_ok & (depth[:, None] < K), other=0.0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # k is where the *next* step begins; past the end of K the loads are fully masked and cost nothing.
    for k in range(BLOCK_K, K + BLOCK_K, BLOCK_K):
        ahead = k + depth
        a_next = tl.load(a_rows + ahead[None, :] * stride_ak, mask=row_ok & (ahead[None, :] < K), other=0.0)
        b_next = tl.load(b_cols + ahead[:, None] * stride_bk, mask=col_ok & (ahead[:, None] < K), other=0.0)
        acc = tl.dot(a_now, b_next, acc, input_precision="ieee")
        a_now = a_next
        b_now = b_next

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)

    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
