"""EXPECT PASS from matmul and matmul_bias_relu: tl.range over the tiles of a multiprocessor."""

import torch
import triton
import triton.language as tl

WITHOUT_GPU = 3  # programs in the interpreter, few enough that each has several tiles


def _config(block_m, block_n, block_k, stages, warps):
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(*row)
    for row in [
        (128, 256, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (128, 128, 32, 4, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 32, 4, 4),
    ]
]


def fitting(configs, named_args, **kwargs):
    """What is no wider than the result; for fp32 the smallest alone."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    smaller = min(named_args["M"], named_args["N"])
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= smaller and config.kwargs["BLOCK_N"] <= smaller:
            kept += [config]
    return kept if len(kept) > 0 else [configs[-1]]


@triton.jit
def tile_product(
    a_ptr, b_ptr, m, n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """fp32 tile of a @ b whose first row is m and whose first column is n."""
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rows[:, None] * stride_am + ks.to(tl.int64)[None, :] * stride_ak
    b_tile = b_ptr + ks.to(tl.int64)[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_tile, mask=(rows[:, None] < M) & (ks[None, :] < left), other=0.0)
        b = tl.load(b_tile, mask=(ks[:, None] < left) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    return acc


@triton.autotune(CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        first = tile // (GROUP_M * tiles_n) * GROUP_M
        height = tl.minimum(GROUP_M, tiles_m - first)
        within = tile % (GROUP_M * tiles_n)
        m = (first + within % height) * BLOCK_M
        n = within // height * BLOCK_N
        acc = tile_product(
            a_ptr, b_ptr, m, n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
        )
        rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]
        cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)[None, :]
        if BIAS_RELU:
            acc = tl.maximum(acc + tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32), 0.0)
        tl.store(
            c_ptr + rows * stride_cm + cols * stride_cn,
            acc.to(c_ptr.dtype.element_ty),
            mask=(rows < M) & (cols < N),
        )


def _programs(device: torch.device) -> int:
    if not torch.cuda.is_available():
        return WITHOUT_GPU
    return torch.cuda.get_device_properties(device).multi_processor_count


def _launch(a, b, bias, out, BIAS_RELU):
    M, K = a.shape
    N = b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    at_most = _programs(a.device)

    def grid(meta):
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return (min(tiles, at_most),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=BIAS_RELU,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b in fp32 sums."""
    return _launch(a, b, a, out, BIAS_RELU=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, BIAS_RELU=True)
