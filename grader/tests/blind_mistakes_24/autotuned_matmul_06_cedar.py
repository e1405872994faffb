# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In matmul_kernel the programs from `extra` on start at `extra * (each + 1) + program * each`, too far by extra * each tiles, so tiles stay unwritten where the number of tiles exceeds the number of programs and is no multiple of it. It should be `extra * (each + 1) + (program - extra) * each`.
"""Persistent matmul in which each program takes one uninterrupted run of tiles."""

import torch
import triton
import triton.language as tl


def _try(block_m, block_n, block_k, stages, warps):
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "BAND": 4}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


CONFIGS = [
    _try(128, 256, 64, 3, 8),
    _try(256, 128, 64, 3, 8),
    _try(128, 128, 64, 3, 8),
    _try(128, 64, 64, 4, 4),
    _try(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BAND: tl.constexpr):
    """Bands of BAND tile columns, each walked row by row; the last band may be narrower."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_band = BAND * tiles_m
    left = tile // in_band * BAND
    width = tl.minimum(tiles_n - left, BAND)
    within = tile % in_band
    return within // width * BLOCK_M, (left + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)

    # The first `extra` programs take one tile more than the others.
    each = tiles // programs
    extra = tiles % programs
    if program < extra:
        first = program * (each + 1)
        stop = first + each + 1
    else:
        first = extra * (each + 1) + program * each
        stop = first + each
    stop = tl.minimum(stop, tiles)

    for tile in range(first, stop):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, BAND)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
            a = tl.load(
                a_ptr + rows * stride_am + ks[None, :] * stride_ak, mask=(rows < M) & (ks[None, :] < K), other=0.0
            )
            b = tl.load(
                b_ptr + ks[:, None] * stride_bk + cols * stride_bn, mask=(ks[:, None] < K) & (cols < N), other=0.0
            )
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
            acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
        tl.store(
            c_ptr + rows * stride_cm + cols * stride_cn,
            acc.to(c_ptr.dtype.element_ty),
            mask=(rows < M) & (cols < N),
        )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # one program for each SM; the interpreter gets six
    processors = 6
    if a.is_cuda:
        processors = torch.cuda.get_device_properties(a.device).multi_processor_count

    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (min(tiles(meta), processors),)  # noqa: E731

    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; any strides, fp32 sums."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); any strides, the bias contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
