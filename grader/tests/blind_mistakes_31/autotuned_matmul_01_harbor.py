# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product, autotuned; where the result has few tiles and K is long, K is cut into slices and added up later."""

import torch
import triton
import triton.language as tl

ROWS, COLS = 32, 64


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that are not larger than the result; small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile, in groups of GROUP_M rows of tiles."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, piece) multiplies one slice of K for one tile and stores it in layer `piece` of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    piece = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)

    # Every slice is a whole number of blocks; the last one ends at K, and some may be empty.
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    begin = piece * share
    end = tl.minimum(begin + share, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        across = (k + ks)[None, :]
        down = (k + ks)[:, None]
        a = tl.load(a_ptr + rows * stride_am + across * stride_ak, mask=(rows < M) & (across < end), other=0.0)
        b = tl.load(b_ptr + down * stride_bk + cols * stride_bn, mask=(down < end) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = tl.maximum(acc + tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32), 0.0)
    layer = c_ptr + piece.to(tl.int64) * stride_cs
    tl.store(layer + rows * stride_cm + cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def total_kernel(
    parts_ptr, out_ptr, bias_ptr, M, N, stride_om, stride_on,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """out = the layers of parts (SPLITS, M, N) added up in fp32, with the epilogue; ROWS x COLS a program."""
    wide = tl.cdiv(N, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // wide * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = (pid % wide * COLS + tl.arange(0, COLS)).to(tl.int64)[None, :]
    inside = (rows < M) & (cols < N)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for piece in range(SPLITS):
        total += tl.load(parts_ptr + (rows + piece * M) * N + cols, mask=inside, other=0.0)
    if BIAS_RELU:
        total = tl.maximum(total + tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32), 0.0)
    tl.store(out_ptr + rows * stride_om + cols * stride_on, total.to(out_ptr.dtype.element_ty), mask=inside)


def _slices(M, N, K):
    """How many programs share the K of one tile: one, unless the result is small and K is long."""
    tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
    return 1 if tiles > 64 or K < 1024 else min(16, K // 512)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    splits = _slices(M, N, K)
    if splits == 1:
        target, strides = out, (0, out.stride(0), out.stride(1))
    else:
        target = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
        strides = (M * N, N, 1)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits)  # noqa: E731
    matmul_kernel[grid](
        a, b, target, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), strides[0], strides[1], strides[2],
        SPLITS=splits, BIAS_RELU=bias_relu and splits == 1,
    )  # fmt: skip
    if splits > 1:
        total_kernel[(triton.cdiv(M, ROWS) * triton.cdiv(N, COLS),)](
            target, out, bias, M, N, out.stride(0), out.stride(1),
            SPLITS=splits, BIAS_RELU=bias_relu, ROWS=ROWS, COLS=COLS,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; no bias is read, so a stands in for it."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
