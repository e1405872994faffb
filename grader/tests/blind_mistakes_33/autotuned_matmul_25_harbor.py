# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | in `matmul_kernel` the loop over whole blocks of K loads the block after the current one (`x_next`, `y_next`) with the masks of rows and columns only: in its last turn this block lies partly or wholly beyond K, so a and b are read outside of their tensors (labs/README.md: OUT_OF_BOUNDS, even where the result was right); the values are never used and all numbers are right; shows in both functions for every K >= BLOCK_K; both loads need `ks < K` in their masks, or the loop must stop one block earlier
"""Matrix product that asks for the next block of K before it multiplies the current one."""

import torch
import triton
import triton.language as tl


def _tile(m, n, k, warps, stages):
    return triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages
    )


CONFIGS = [
    _tile(128, 256, 32, 8, 3),
    _tile(128, 128, 64, 8, 3),
    _tile(128, 128, 32, 8, 4),
    _tile(64, 128, 32, 4, 4),
    _tile(64, 64, 32, 4, 3),
    _tile(32, 32, 32, 4, 2),
]


def fitting(configs, named_args, **kwargs):
    """Nothing larger than the result; 64 at most for fp32."""
    rows, columns = named_args["M"], named_args["N"]
    top = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    fit = [c for c in configs if c.kwargs["BLOCK_M"] <= min(rows, top) and c.kwargs["BLOCK_N"] <= min(columns, top)]
    return fit or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    across = tl.cdiv(N, BLOCK_N)
    group, rest = tile // (GROUP_M * across), tile % (GROUP_M * across)
    first = group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    return (first + rest % height) * BLOCK_M, rest // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, 8)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K
    if whole > 0:
        x = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok, other=0.0)
        y = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_ok, other=0.0)
        for _ in range(whole):
            ks += BLOCK_K
            x_next = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok, other=0.0)
            y_next = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_ok, other=0.0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
            x, y = x_next, y_next

    # what is left of K is shorter than a block
    if K % BLOCK_K > 0:
        x_tail = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok & (ks < K)[None, :], other=0.0)
        y_tail = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_ok & (ks < K)[:, None], other=0.0)
        acc = tl.dot(x_tail, y_tail, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)

    c_tile = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The product of a and b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The product, plus one bias for each column, clamped at 0."""
    return _launch(a, b, bias, out, bias_relu=True)
