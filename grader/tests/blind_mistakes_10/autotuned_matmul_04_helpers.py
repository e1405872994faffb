# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | `finish` clamps first and adds the bias afterwards, relu(a @ b) + bias; must be relu(a @ b + bias): the bias inside the maximum. Shows in every call of matmul_bias_relu where a sum or a bias is negative; matmul is right.
"""Matrix product; each part of a program is a function of its own."""

import torch
import triton
import triton.language as tl


def make_configs():
    """Large tiles with eight warps, small ones with four."""
    configs = []
    for bm, bn, bk, stages in ((128, 256, 64, 3), (256, 128, 32, 4), (128, 128, 64, 3)):
        configs.append(triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=8))
    for bm, bn, bk, stages in ((64, 128, 64, 4), (64, 64, 32, 5)):
        configs.append(triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=4))
    return configs


def prune(configs, named_args, **kwargs):
    """No tile larger than the result; at most 64 x 64 for fp32."""
    top = 64 if named_args["a"].dtype == torch.float32 else 256
    edge = min(top, named_args["M"], named_args["N"])
    chosen = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= edge]
    return chosen if chosen else configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    tall, wide = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = tile // (GROUP * wide) * GROUP
    height = min(tall - first, GROUP)
    within = tile % (GROUP * wide)
    return (first + within % height) * BM, within // height * BN


@triton.jit
def address(ptr, rows, cols, row_stride, col_stride):
    """A block of pointers for a column of row numbers and a row of column numbers."""
    return ptr + rows.to(tl.int64)[:, None] * row_stride + cols.to(tl.int64)[None, :] * col_stride


@triton.jit
def inside(rows, cols, n_rows, n_cols):
    return (rows[:, None] < n_rows) & (cols[None, :] < n_cols)


@triton.jit
def finish(acc, bias_ptr, cols, N):
    """Bias and ReLU, in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    positive = tl.where(acc > 0, acc, 0.0)
    return positive + bias[None, :]


@triton.autotune(configs=make_configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def product_kernel(
    a, b, c, bias, M, N, K, am, ak, bk, bn, cm, cn,
    EPILOGUE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BM, BN, 8)
    rows = m + tl.arange(0, BM)
    cols = n + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        left = tl.load(address(a, rows, ks, am, ak), mask=inside(rows, ks, M, K), other=0.0)
        right = tl.load(address(b, ks, cols, bk, bn), mask=inside(ks, cols, K, N), other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    if EPILOGUE:
        acc = finish(acc, bias, cols, N)
    tl.store(address(c, rows, cols, cm, cn), acc.to(c.dtype.element_ty), mask=inside(rows, cols, M, N))


def launch(a, b, bias, out, epilogue: bool):
    M, K = a.shape
    _, N = b.shape
    result = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    product_kernel[grid](
        a, b, result, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), result.stride(0), result.stride(1),
        EPILOGUE=epilogue,
    )  # fmt: skip
    return result


def matmul(a, b, *, out=None):
    return launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return launch(a, b, bias, out, True)
