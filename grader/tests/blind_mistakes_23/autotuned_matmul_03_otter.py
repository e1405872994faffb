# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel, tl.reshape(tl.join(left, right), (BLOCK_M, BLOCK_N)) interleaves the columns of the two halves instead of putting right behind left, so the columns of each tile are permuted. The joined block needs tl.permute(..., (0, 2, 1)) before the reshape; only column 0 of each tile and the last one are right.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(*shape)
    for shape in [
        (128, 256, 64, 3, 8),
        (128, 256, 32, 4, 8),
        (128, 128, 64, 3, 8),
        (64, 256, 32, 4, 4),
        (64, 128, 64, 3, 4),
        (64, 64, 32, 3, 4),
    ]
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
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * num_n)
    rest = tile - group * (GROUP_M * num_n)
    top = group * GROUP_M
    height = tl.minimum(num_m - top, GROUP_M)
    col = rest // height
    row = top + rest - col * height
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c.

    The tile is computed as a left and a right half: the tile of a is loaded once and used for both.
    """
    HALF: tl.constexpr = BLOCK_N // 2
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)

    offs_m = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    offs_l = n.to(tl.int64) + tl.arange(0, HALF)
    offs_r = offs_l + HALF
    row_ok = (offs_m < M)[:, None]
    left_ok = (offs_l < N)[None, :]
    right_ok = (offs_r < N)[None, :]

    a_rows = a_ptr + offs_m[:, None] * stride_am
    b_left = b_ptr + offs_l[None, :] * stride_bn
    b_right = b_ptr + offs_r[None, :] * stride_bn

    left = tl.zeros((BLOCK_M, HALF), dtype=tl.float32)
    right = tl.zeros((BLOCK_M, HALF), dtype=tl.float32)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    tl.assume(K > 0)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_rows + offs_k[None, :] * stride_ak, mask=row_ok & (offs_k < K)[None, :], other=0.0)
        b_shift = offs_k[:, None] * stride_bk
        k_ok = (offs_k < K)[:, None]
        left = tl.dot(a, tl.load(b_left + b_shift, mask=k_ok & left_ok, other=0.0), left, input_precision="ieee")
        right = tl.dot(a, tl.load(b_right + b_shift, mask=k_ok & right_ok, other=0.0), right, input_precision="ieee")
        offs_k += BLOCK_K

    # Both halves side by side again, for one epilogue and one wide store.
    acc = tl.reshape(tl.join(left, right), (BLOCK_M, BLOCK_N))
    offs_n = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    col_ok = offs_n < N

    if BIAS_RELU:
        bias = tl.load(bias_ptr + offs_n, mask=col_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_ok & col_ok[None, :],
    )


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
