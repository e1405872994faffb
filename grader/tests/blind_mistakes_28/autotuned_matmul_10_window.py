# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In the epilogue of matmul_kernel `acc = tl.where(acc + shift > 0, acc, 0.0)` uses the bias in the condition only: the elements that remain are a @ b without the bias (even negative ones), so matmul_bias_relu is wrong in every case with a bias that is not 0; matmul is right; it should be tl.where(acc + shift > 0, acc + shift, 0.0)
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 4}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(256, 128, 64, 4, 8),
    _config(128, 256, 64, 4, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 64, 64, 4, 4),
    _config(32, 64, 64, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_tiles = tl.cdiv(N, BLOCK_N)
    band = tile // (GROUP_M * n_tiles)
    inside_band = tile - band * (GROUP_M * n_tiles)
    # The last band may be lower.
    rows_in_band = tl.minimum(GROUP_M, tl.cdiv(M, BLOCK_M) - band * GROUP_M)
    tile_row = band * GROUP_M + inside_band % rows_in_band
    tile_col = inside_band // rows_in_band
    return tile_row * BLOCK_M, tile_col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)[None, :]).to(tl.int64)
    a_base = a_ptr + rows * stride_am
    b_base = b_ptr + cols * stride_bn
    down = tl.arange(0, BLOCK_K)[:, None].to(tl.int64)
    along = tl.arange(0, BLOCK_K)[None, :].to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_base + along * stride_ak, mask=(rows < M) & (along < K), other=0.0)
        b = tl.load(b_base + down * stride_bk, mask=(down < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        down += BLOCK_K
        along += BLOCK_K

    if BIAS_RELU:
        shift = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.where(acc + shift > 0, acc, 0.0)
    tl.store(
        c_ptr + rows * stride_cm + cols * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows < M) & (cols < N),
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def one_per_tile(meta):
        down = triton.cdiv(M, meta["BLOCK_M"])
        across = triton.cdiv(N, meta["BLOCK_N"])
        return (down * across,)

    matmul_kernel[one_per_tile](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
