"""EXPECT PASS from matmul and matmul_bias_relu: a two-dimensional grid, and no grouping of tiles."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=3, num_warps=4),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64}, num_stages=3, num_warps=4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def plane_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    EPILOGUE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The two coordinates of the program are those of its tile of c."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows * am + ks[None, :] * ak, mask=(rows < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptr + ks[:, None] * bk + cols * bn, mask=(ks[:, None] < K) & (cols < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    if EPILOGUE:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.where(acc > 0.0, acc, 0.0)
    tl.store(c_ptr + rows * cm + cols * cn, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def run(a, b, bias, out):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)

    def grid(meta):
        return triton.cdiv(out.shape[0], meta["BLOCK_M"]), triton.cdiv(out.shape[1], meta["BLOCK_N"])

    plane_kernel[grid](
        a, b, out, bias, *out.shape, a.shape[1], *a.stride(), *b.stride(), *out.stride(),
        EPILOGUE=bias is not None,
    )  # fmt: skip
    return out


def matmul(a, b, *, out=None):
    return run(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out=None):
    return run(a, b, bias, out)
