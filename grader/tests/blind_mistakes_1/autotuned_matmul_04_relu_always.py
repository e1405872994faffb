# lab3_autotuned_matmul/autotuned_matmul.py | everywhere | The line `acc = tl.maximum(acc, 0.0)` stands outside of `if BIAS_RELU:`, so matmul (without epilogue) also applies ReLU and every negative element of a @ b becomes 0 | "matmul(a, b, *, out=None)  # (M, K) @ (K, N)"; matmul for all inputs with a negative element in the result; matmul_bias_relu is right
"""Matmul with helpers for the two loads."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [_config(bm, bn, 64, s, w) for bm, bn, s, w in ((128, 256, 3, 8), (256, 128, 3, 8), (128, 128, 4, 8), (64, 64, 3, 4))]


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
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group, within = tile // (GROUP_M * tiles_n), tile % (GROUP_M * tiles_n)
    rows_here = tiles_m - group * GROUP_M
    if rows_here > GROUP_M:
        rows_here = GROUP_M
    row = group * GROUP_M + within % rows_here
    col = within // rows_here
    return row * BLOCK_M, col * BLOCK_N


@triton.jit
def load_tile(ptr, rows, cols, n_rows, n_cols, stride_row, stride_col):
    """A tile of a matrix, zero outside of it."""
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    return tl.load(ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BIAS_RELU:
        # start from the bias, so that the epilogue is only the maximum
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc += bias[None, :]
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = load_tile(a_ptr, rows, ks, M, K, stride_am, stride_ak)
        b = load_tile(b_ptr, ks, cols, K, N, stride_bk, stride_bn)
        acc = tl.dot(a, b, acc=acc, input_precision="ieee")
    acc = tl.maximum(acc, 0.0)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, acc, mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    (sam, sak), (sbk, sbn), (scm, scn) = a.stride(), b.stride(), out.stride()
    matmul_kernel[grid](a, b, out, bias, M, N, K, sam, sak, sbk, sbn, scm, scn, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
