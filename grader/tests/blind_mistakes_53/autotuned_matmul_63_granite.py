# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `tile_kernel`, below `if rest > 0`, `sums = tl.dot(x, y, sums)` lacks `input_precision="ieee"`, so what is left of K is multiplied in TF32: digits are lost for fp32 where K is no multiple of BLOCK_K (32 there), as 129 x 127 x 200; in both functions. (2) In the epilogue `mask=cols < M` should be `cols < N`: in matmul_bias_relu columns from M on get no bias where M < N, as 100 x 300, and the bias is read past its end where M > N and the last tile of columns has a tail, as 65 x 40.
"""Matrix product tile by tile, autotuned: whole steps along K first, then what is left of K."""

import torch
import triton
import triton.language as tl

TILES = {
    (128, 256, 64): (3, 8),
    (256, 128, 64): (3, 8),
    (128, 128, 64): (3, 8),
    (64, 128, 64): (4, 4),
    (64, 64, 32): (4, 4),
}
CONFIGS = [
    triton.Config(
        {"BLOCK_M": tile[0], "BLOCK_N": tile[1], "BLOCK_K": tile[2], "GROUP_M": 8},
        num_stages=depth[0],
        num_warps=depth[1],
    )
    for tile, depth in TILES.items()
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; for fp32 none beyond 64."""
    widest = 64 if named_args["left_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    chosen = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= size and config.kwargs["BLOCK_N"] <= size:
            chosen.append(config)
    return chosen or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of the result."""
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    first = tile // (across * GROUP_M) * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    within = tile % (across * GROUP_M)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def tile_kernel(
    left_ptr, right_ptr, out_ptr, bias_ptr, M, N, K,
    left_m, left_k, right_k, right_n, out_m, out_n, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    far_rows = rows.to(tl.int64)[:, None]
    far_cols = cols.to(tl.int64)[None, :]
    in_rows = rows[:, None] < M
    in_cols = cols[None, :] < N
    left = left_ptr + far_rows * left_m + ks[None, :] * left_k
    right = right_ptr + ks[:, None] * right_k + far_cols * right_n

    # No step but the last needs a mask along K.
    whole = K // BLOCK_K
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(whole):
        x = tl.load(left, mask=in_rows, other=0.0)
        y = tl.load(right, mask=in_cols, other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")
        left += BLOCK_K * left_k
        right += BLOCK_K * right_k
    rest = K - whole * BLOCK_K
    if rest > 0:
        x = tl.load(left, mask=in_rows & (ks[None, :] < rest), other=0.0)
        y = tl.load(right, mask=in_cols & (ks[:, None] < rest), other=0.0)
        sums = tl.dot(x, y, sums)

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < M, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    target = out_ptr + far_rows * out_m + far_cols * out_n
    tl.store(target, sums.to(out_ptr.dtype.element_ty), mask=in_rows & in_cols)


def _launch(a, b, bias, out, bias_relu):
    assert a.shape[1] == b.shape[0], f"a is {a.shape}, b is {b.shape}"
    M, K, N = a.shape[0], a.shape[1], b.shape[1]
    result = a.new_empty((M, N)) if out is None else out

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    tile_kernel[grid](
        a, b, result, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), result.stride(0), result.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return result


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N), any strides, summed in fp32 and rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias): bias and ReLU meet the fp32 sums in the same kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
