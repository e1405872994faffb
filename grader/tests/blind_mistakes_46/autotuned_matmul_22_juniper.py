# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Nothing is wrong. Unusual: where the result is small and K long, programs share a tile by `tl.atomic_add` into an fp32 workspace from `torch.zeros` (`reset_to_zero` for the tuner) and a second launch has the epilogue; `tl.swizzle2d` gives the tile order.
"""Matrix product: large results tile by tile, small ones by atomic additions to fp32 sums and a second launch."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; for fp32 operands 64 x 64."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def epilogue(sums, bias, BIAS_RELU: tl.constexpr):
    """relu(sums + bias) in fp32, or the sums as they are."""
    if BIAS_RELU:
        sums += bias.to(tl.float32)
        sums = tl.where(sums < 0.0, 0.0, sums)
    return sums


# Each trial of the tuner adds to c_ptr where CREWS > 1, so it is cleared before each of them.
@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    reset_to_zero=["c_ptr"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    CREWS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """CREWS programs share a tile: number w takes blocks w, w + CREWS, w + 2 CREWS, ... of K."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    worker = tl.program_id(axis=0) // (tiles_m * tiles_n)
    tile = tl.program_id(axis=0) % (tiles_m * tiles_n)
    tile_m, tile_n = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP)
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    start = worker * BLOCK_K
    along = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows * stride_am + (start + along)[None, :] * stride_ak
    b_ptrs = b_ptr + (start + along)[:, None] * stride_bk + cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, K, CREWS * BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows < M) & (along[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(along[:, None] < K - k) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += CREWS * BLOCK_K * stride_ak
        b_ptrs += CREWS * BLOCK_K * stride_bk

    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    inside = (rows < M) & (cols < N)
    if CREWS > 1:
        tl.atomic_add(c_ptrs, acc, mask=inside, sem="relaxed")
    else:
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
            acc = epilogue(acc, bias, BIAS_RELU)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """BLOCK elements of c from their fp32 sums, counted row by row."""
    flat = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = flat // N
    col = flat % N
    sums = tl.load(sums_ptr + flat, mask=row < M, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=row < M, other=0.0)
        sums = epilogue(sums, bias, BIAS_RELU)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, sums.to(c_ptr.dtype.element_ty), mask=row < M)


def _crews(M, N, K):
    """Twice as many programs for a tile while there are few of them and each has at least 256 of K."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    crews = 1
    while crews < 8 and crews * tiles < 64 and K >= 2 * crews * 256:
        crews *= 2
    return crews


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    crews = _crews(M, N, K)
    target = out if crews == 1 else torch.zeros((M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (crews * triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    product_kernel[grid](
        a, b, target, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), target.stride(0), target.stride(1),
        CREWS=crews, BIAS_RELU=bias_relu,
    )  # fmt: skip
    if crews > 1:
        strides = (out.stride(0), out.stride(1))
        finish_kernel[(triton.cdiv(M * N, 512),)](target, out, bias, M, N, *strides, BIAS_RELU=bias_relu, BLOCK=512)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b: fp32 sums, rounded once to the dtype of a."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), where the last launch has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
