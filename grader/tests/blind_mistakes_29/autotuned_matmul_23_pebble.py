# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) place: the last group is taken to have GROUP_M tile rows like the others (`tile % GROUP_M`, `// GROUP_M` instead of the height min(tiles_m - first, GROUP_M)); where the number of tile rows is no multiple of 4 and there are several tile columns, tiles go to rows that do not exist and others stay unwritten. (2) matmul_kernel: the block pointer of c has strides (N, 1) instead of out.stride(); wrong, or outside, for a padded, transposed or spread `out`.
"""Matrix product with block pointers: the hardware-friendly way to say shape, strides and tile once."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 4}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 32, 4, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 3, 4),
    _config(32, 32, 32, 3, 2),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of tile number `tile`; rows change fastest inside a group."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    tile_m = tile // in_group * GROUP_M + tile % GROUP_M
    tile_n = tile % in_group // GROUP_M
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), N, BLOCK_M, BLOCK_N, GROUP_M)
    a_block = tl.make_block_ptr(
        base=a_ptr, shape=(M, K), strides=(stride_am, stride_ak),
        offsets=(m, 0), block_shape=(BLOCK_M, BLOCK_K), order=(1, 0),
    )  # fmt: skip
    b_block = tl.make_block_ptr(
        base=b_ptr, shape=(K, N), strides=(stride_bk, stride_bn),
        offsets=(0, n), block_shape=(BLOCK_K, BLOCK_N), order=(1, 0),
    )  # fmt: skip
    c_block = tl.make_block_ptr(
        base=c_ptr, shape=(M, N), strides=(N, 1),
        offsets=(m, n), block_shape=(BLOCK_M, BLOCK_N), order=(1, 0),
    )  # fmt: skip

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BLOCK_K))
        b_block = tl.advance(b_block, (BLOCK_K, 0))

    if BIAS_RELU:
        cols = n + tl.arange(0, BLOCK_N)
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The product a @ b."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, True)
