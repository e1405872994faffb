# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Block pointers for all matrices and the bias (`tl.make_block_ptr`, `boundary_check`, int32 offsets that Triton widens), 264 persistent programs over all tiles in the order of `tl.swizzle2d`, other names of the tile sizes, ReLU as a helper with `tl.where`.
"""Matrix product with block pointers: a few programs share all tiles, in the order of tl.swizzle2d."""

import torch
import triton
import triton.language as tl


def _try(tile, step, num_stages, num_warps):
    height, width = tile
    return triton.Config(
        {"HEIGHT": height, "WIDTH": width, "STEP": step}, num_stages=num_stages, num_warps=num_warps
    )


CONFIGS = [
    _try((128, 256), 64, 3, 8),
    _try((256, 128), 64, 3, 8),
    _try((128, 128), 64, 3, 8),
    _try((64, 128), 64, 3, 4),
    _try((64, 64), 32, 4, 4),
]
PROGRAMS = 264


def fitting(configs, named_args, **kwargs):
    """Tiles that the result fills; for fp32, which tensor cores do not take, small ones."""
    room = min(named_args["M"], named_args["N"])
    room = min(room, 64) if named_args["c_ptr"].dtype == torch.float32 else room
    return [c for c in configs if max(c.kwargs["HEIGHT"], c.kwargs["WIDTH"]) <= room] or configs[-1:]


@triton.jit
def relu(x):
    return tl.where(x > 0.0, x, 0.0)


@triton.jit
def product_of_tile(
    a_ptr, b_ptr, row, col, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The fp32 sums of the tile whose first element is (row, col)."""
    a_block = tl.make_block_ptr(
        base=a_ptr, shape=(M, K), strides=(stride_am, stride_ak), offsets=(row, 0),
        block_shape=(HEIGHT, STEP), order=(1, 0),
    )  # fmt: skip
    b_block = tl.make_block_ptr(
        base=b_ptr, shape=(K, N), strides=(stride_bk, stride_bn), offsets=(0, col),
        block_shape=(STEP, WIDTH), order=(1, 0),
    )  # fmt: skip
    tl.assume(K > 0)
    sums = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for _ in range(0, K, STEP):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_block = tl.advance(a_block, (0, STEP))
        b_block = tl.advance(b_block, (STEP, 0))
    return sums


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FUSED: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    down = tl.cdiv(M, HEIGHT)
    across = tl.cdiv(N, WIDTH)
    for tile in range(tl.program_id(axis=0), down * across, tl.num_programs(axis=0)):
        i, j = tl.swizzle2d(tile // across, tile % across, down, across, 8)
        row = i * HEIGHT
        col = j * WIDTH
        sums = product_of_tile(
            a_ptr, b_ptr, row, col, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, HEIGHT, WIDTH, STEP
        )
        if FUSED:
            bias_block = tl.make_block_ptr(
                base=bias_ptr, shape=(N,), strides=(1,), offsets=(col,), block_shape=(WIDTH,), order=(0,)
            )
            bias = tl.load(bias_block, boundary_check=(0,), padding_option="zero")
            sums = relu(sums + bias.to(tl.float32)[None, :])
        c_block = tl.make_block_ptr(
            base=c_ptr, shape=(M, N), strides=(stride_cm, stride_cn), offsets=(row, col),
            block_shape=(HEIGHT, WIDTH), order=(1, 0),
        )  # fmt: skip
        tl.store(c_block, sums.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _multiply(a, b, bias, out, fused):
    M, K = a.shape
    N = b.shape[1]
    out = a.new_empty((M, N)) if out is None else out

    def programs(meta):
        return (min(triton.cdiv(M, meta["HEIGHT"]) * triton.cdiv(N, meta["WIDTH"]), PROGRAMS),)

    matmul_kernel[programs](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), FUSED=fused
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once."""
    return _multiply(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), in the kernel of matmul."""
    return _multiply(a, b, bias, out, True)
