# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | inside: `i[:, None] < I & j[None, :] < J` lacks parentheses; & binds tighter than <, so it is the chained comparison i < (I & j) < J, which Triton does not compile (and the interpreter cannot turn a block into one bool); fails in every case of both functions; should be (i[:, None] < I) & (j[None, :] < J)
"""Matrix product from three small helpers: where a tile is, where its elements lie, which of them exist."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 8},
        num_stages=num_stages,
        num_warps=num_warps,
        pre_hook=pre_hook,
    )


CONFIGS = [_config(m, n, 64, 3, 8) for m, n in ((128, 256), (256, 128), (128, 128))]
CONFIGS += [_config(m, n, 64, 4, 4) for m, n in ((64, 128), (128, 64))]
CONFIGS += [_config(64, 64, 32, 4, 4)]


def fitting(configs, named_args, **kwargs):
    """Drops tiles that the result, or a fp32 product without tensor cores, is too small for."""
    bound = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        bound = min(bound, 64)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= bound and config.kwargs["BLOCK_N"] <= bound:
            kept.append(config)
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """Strips of GROUP_N columns of tiles, walked row by row."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    strip = tile // (GROUP_N * tiles_m)
    left = strip * GROUP_N
    width = tl.minimum(tiles_n - left, GROUP_N)
    rest = tile % (GROUP_N * tiles_m)
    return rest // width * BLOCK_M, (left + rest % width) * BLOCK_N


@triton.jit
def window(ptr, i, j, stride_i, stride_j):
    """The addresses of the elements (i, j) of a matrix."""
    return ptr + i[:, None] * stride_i + j[None, :] * stride_j


@triton.jit
def inside(i, j, I, J):
    """Which of the elements (i, j) lie in an I x J matrix."""
    return i[:, None] < I & j[None, :] < J


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        x = tl.load(window(a_ptr, rows, ks, stride_am, stride_ak), mask=inside(rows, ks, M, K), other=0.0)
        y = tl.load(window(b_ptr, ks, cols, stride_bk, stride_bn), mask=inside(ks, cols, K, N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc += bias.to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    c_at = window(c_ptr, rows, cols, stride_cm, stride_cn)
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=inside(rows, cols, M, N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    K, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for matrices of one dtype and any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
