# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product by programs that stay: each takes one tile after the other; with bias and ReLU on request.

A row of a and a column of b are the same thing here, a line of K numbers: both are loaded by `strip`.
"""

import torch
import triton
import triton.language as tl


def _config(lines_a, lines_b, depth, num_stages, num_warps):
    sizes = {"BLOCK_M": lines_a, "BLOCK_N": lines_b, "BLOCK_K": depth, "BAND": 8}
    return triton.Config(sizes, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    *(_config(*lines, 64, num_stages=3, num_warps=8) for lines in ((128, 256), (256, 128), (128, 128))),
    *(_config(*lines, 32, num_stages=4, num_warps=4) for lines in ((64, 128), (64, 64), (32, 32))),
]


def fitting(configs, named_args, **kwargs):
    """The configs whose tiles are no larger than the result, up to 64 for fp32."""
    ceiling = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    ceiling = min(ceiling, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= ceiling] or configs[-1:]


def programs_on(device):
    """As many programs as there are multiprocessors; any number is right."""
    if device.type != "cuda":
        return 48
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BAND: tl.constexpr):
    """First row and first column of a tile.

    BAND rows of tiles are walked column by column, from left to right and in the next band from right to left.
    """
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = tile // (BAND * tiles_n)
    within = tile % (BAND * tiles_n)
    top = band * BAND
    height = min(tl.cdiv(M, BLOCK_M) - top, BAND)
    column = within // height
    column += (band % 2) * (tiles_n - 1 - 2 * column)
    return (top + within % height) * BLOCK_M, column * BLOCK_N


@triton.jit
def strip(base, lines, ks, stride_line, stride_k, n_lines, K):
    """Numbers `ks` of the given lines, one line in each row of the block; 0 where there is no such number."""
    exists = (lines[:, None] < n_lines) & (ks[None, :] < K)
    return tl.load(base + lines[:, None] * stride_line + ks[None, :] * stride_k, mask=exists, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); of P programs, number p owns tiles p, p + P, p + 2 P and so on."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, BAND)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)

        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, K, BLOCK_K):
            ks = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
            of_a = strip(a_ptr, rows, ks, stride_am, stride_ak, M, K)
            of_b = strip(b_ptr, cols, ks, stride_bn, stride_bk, N, K)
            sums = tl.dot(of_a, tl.trans(of_b), sums, input_precision="ieee")

        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            sums = tl.maximum(sums + bias[None, :], 0.0)
        target = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        exists = (rows[:, None] < M) & (cols[None, :] < N)
        tl.store(target, sums.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty((M, N)) if out is None else out
    most = programs_on(a.device)

    count = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (min(most, count(meta)),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # `matmul` reads no bias: the place of its pointer is taken by a.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
