# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) resident_kernel sets acc to zero only once, before the loop over tiles: from its second tile on, each program adds to the sums of its earlier tiles. Both functions are wrong where there are more tiles than programs (12 without a GPU, else the number of SMs); tl.zeros belongs at the start of each tile. (2) In the same kernel the sums are rounded to the dtype of c before the bias is added and clamped, `y = acc.to(...)` above `if BIAS_RELU`: matmul_bias_relu loses digits in fp16 and bf16 (exact sums show it), not in fp32; bias and ReLU must come in fp32, the rounding at the store.
"""Persistent matrix product: a fixed number of programs walks over the tiles, with block pointers."""

import torch
import triton
import triton.language as tl

KEY = ["M", "N", "K"]
SHAPES = (
    # rows, columns, depth, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 64, 32, 4, 4),
    (64, 64, 32, 4, 4),
    (32, 32, 32, 4, 4),
)
CONFIGS = []
for rows, columns, depth, stages, warps in SHAPES:
    CONFIGS.append(
        triton.Config(
            {"ROWS": rows, "COLUMNS": columns, "DEPTH": depth}, num_stages=stages, num_warps=warps
        )
    )


def no_larger_than_c(configs, named_args, **kwargs):
    side = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        side = min(side, 64)
    return [c for c in configs if c.kwargs["ROWS"] <= side and c.kwargs["COLUMNS"] <= side] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=KEY, prune_configs_by={"early_config_prune": no_larger_than_c})
@triton.jit
def resident_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, ROWS)
    tiles_n = tl.cdiv(N, COLUMNS)
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        band = tile // (8 * tiles_n) * 8
        high = tl.minimum(tiles_m - band, 8)
        rest = tile % (8 * tiles_n)
        m = (band + rest % high) * ROWS
        n = (rest // high) * COLUMNS
        a_block = tl.make_block_ptr(a_ptr, (M, K), (stride_am, stride_ak), (m, 0), (ROWS, DEPTH), (1, 0))
        b_block = tl.make_block_ptr(b_ptr, (K, N), (stride_bk, stride_bn), (0, n), (DEPTH, COLUMNS), (1, 0))
        for _ in range(tl.cdiv(K, DEPTH)):
            a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
            b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_block = tl.advance(a_block, (0, DEPTH))
            b_block = tl.advance(b_block, (DEPTH, 0))
        y = acc.to(c_ptr.dtype.element_ty)
        if BIAS_RELU:
            cols = n + tl.arange(0, COLUMNS)
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
            y = tl.maximum(y + bias[None, :], 0.0)
        c_block = tl.make_block_ptr(c_ptr, (M, N), (stride_cm, stride_cn), (m, n), (ROWS, COLUMNS), (1, 0))
        tl.store(c_block, y.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _programs(x):
    """As many as run at once: one for each SM."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 12


def _walk(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    most = _programs(a)

    def grid(meta):
        return (min(most, triton.cdiv(M, meta["ROWS"]) * triton.cdiv(N, meta["COLUMNS"])),)

    resident_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _walk(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _walk(a, b, bias, out, bias_relu=True)
