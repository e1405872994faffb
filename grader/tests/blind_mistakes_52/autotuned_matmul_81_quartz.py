# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | The programs hold a tile of the transposed result (TILE_N x TILE_M), from pointers to b.T and a.T without `tl.trans`; the bias lies along the first axis, and the store goes through exchanged pointers. Blocks of pointers and masks come from helpers with `tl.expand_dims`, and `fitting` looks at each side of a tile for itself.
"""Autotuned matrix product whose programs hold a tile of the transposed result: c.T = b.T @ a.T."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE_M": tm, "TILE_N": tn, "TILE_K": tk}, num_stages=stages, num_warps=warps)
    for tm, tn, tk, stages, warps in (
        (128, 128, 64, 3, 8),
        (128, 64, 64, 3, 4),
        (64, 128, 64, 3, 4),
        (64, 64, 32, 4, 4),
        (16, 64, 64, 3, 4),
        (32, 32, 32, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """No side of a tile longer than that of the result, nor than 64 for fp32."""
    most = 64 if named_args["b_ptr"].dtype == torch.float32 else 128
    m, n = named_args["M"], named_args["N"]
    kept = [c for c in configs if c.kwargs["TILE_M"] <= min(m, most) and c.kwargs["TILE_N"] <= min(n, most)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, TILE_M: tl.constexpr, TILE_N: tl.constexpr, BAND: tl.constexpr):
    """Rows and columns of a tile, as blocks of numbers: bands of BAND rows of tiles, each from left to right."""
    per_band = BAND * tl.cdiv(N, TILE_N)
    top = tile // per_band * BAND
    tall = tl.minimum(tl.cdiv(M, TILE_M) - top, BAND)
    i = top + tile % per_band % tall
    j = tile % per_band // tall
    return i * TILE_M + tl.arange(0, TILE_M), j * TILE_N + tl.arange(0, TILE_N)


@triton.jit
def block(ptr, down, across, stride_down, stride_across):
    """Pointers: `down` along the first axis, `across` along the second; the types of the numbers stay."""
    return ptr + (tl.expand_dims(down * stride_down, 1) + tl.expand_dims(across * stride_across, 0))


@triton.jit
def inside(down, across, size_down, size_across):
    return tl.expand_dims(down < size_down, 1) & tl.expand_dims(across < size_across, 0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def transposed_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """The block of sums has the columns of c along its first axis, and the rows along its second."""
    rows, cols = place(tl.program_id(0), M, N, TILE_M, TILE_N, 8)
    wide_rows, wide_cols = rows.to(tl.int64), cols.to(tl.int64)
    ks = tl.arange(0, TILE_K)
    bt_ptrs = block(b_ptr, wide_cols, ks, stride_bn, stride_bk)
    at_ptrs = block(a_ptr, ks, wide_rows, stride_ak, stride_am)
    sums = tl.zeros((TILE_N, TILE_M), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(K, TILE_K)):
        left = K - step * TILE_K
        bt = tl.load(bt_ptrs, mask=inside(cols, ks, N, left), other=0.0)
        at = tl.load(at_ptrs, mask=inside(ks, rows, left, M), other=0.0)
        sums = tl.dot(bt, at, sums, input_precision="ieee")
        bt_ptrs += TILE_K * stride_bk
        at_ptrs += TILE_K * stride_ak
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + tl.expand_dims(bias, 1), 0.0)
    ct_ptrs = block(c_ptr, wide_cols, wide_rows, stride_cn, stride_cm)
    tl.store(ct_ptrs, sums.to(c_ptr.dtype.element_ty), mask=inside(cols, rows, N, M))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    transposed_kernel[lambda meta: (triton.cdiv(M, meta["TILE_M"]) * triton.cdiv(N, meta["TILE_N"]),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
