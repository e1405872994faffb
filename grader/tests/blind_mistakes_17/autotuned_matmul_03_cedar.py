# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In _launch EVEN_K is K % 16 == 0, but every config has BLOCK_K = 64: for K a multiple of 16 and not of 64 (16, 48, 80, 96, ...) the last step loads past K without a mask and adds wrong products. It should be K % 64 == 0 (the BLOCK_K of the config).
"""c = a @ b, tile by tile, with an optional epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 4, 8),
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    inside = tile - group * (GROUP_M * tiles_n)
    top = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    column = inside // height
    row = top + inside - column * height
    return row * BLOCK_M, column * BLOCK_N


@triton.jit
def load_tile(ptrs, outer_ok, k_ok, EVEN_K: tl.constexpr):
    if EVEN_K:
        tile = tl.load(ptrs, mask=outer_ok, other=0.0)
    else:
        tile = tl.load(ptrs, mask=outer_ok & k_ok, other=0.0)
    return tile


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK_K)):
        across = ks[None, :]
        down = ks[:, None]
        a = load_tile(a_ptr + rows * stride_am + across * stride_ak, rows < M, across < K, EVEN_K)
        b = load_tile(b_ptr + down * stride_bk + cols * stride_bn, cols < N, down < K, EVEN_K)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        ks += BLOCK_K

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)

    where = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(where, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(),
        BIAS_RELU=bias_relu, EVEN_K=K % 16 == 0,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
