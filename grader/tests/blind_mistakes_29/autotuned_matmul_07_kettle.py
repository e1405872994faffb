# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | _launch passes `BIAS_RELU=bias is not None`, but matmul passes a as a stand-in for the bias, so the epilogue always runs: matmul adds the first N elements of the memory of a (past its end if it has fewer) and clamps at 0. Every call of matmul is wrong; matmul_bias_relu is right. BIAS_RELU should be False for matmul (a flag of its own, or None as bias there)
"""C = A B, and relu(A B + bias), from one autotuned kernel."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    sizes = dict(BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=8)
    return triton.Config(sizes, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 4, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 256, 32, 4, 8),
    _config(64, 64, 64, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a tile that is larger than the result, or than 64 for fp32, is not."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    n_rows = tl.cdiv(M, BLOCK_M)
    n_cols = tl.cdiv(N, BLOCK_N)
    full = GROUP_M * n_cols
    start = tile // full * GROUP_M
    height = tl.minimum(n_rows - start, GROUP_M)
    inner = tile % full
    tile_col = inner // height
    tile_row = start + inner - tile_col * height
    return tile_row * BLOCK_M, tile_col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    im = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    jn = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    a_rows = a_ptr + im[:, None] * stride_am
    b_cols = b_ptr + jn[None, :] * stride_bn
    live_m = im < M
    live_n = jn < N

    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    tl.assume(K > 0)
    kk = tl.arange(0, BLOCK_K).to(tl.int64)
    for _ in range(0, K, BLOCK_K):
        live_k = kk < K
        left = tl.load(a_rows + kk[None, :] * stride_ak, mask=live_m[:, None] & live_k[None, :], other=0)
        right = tl.load(b_cols + kk[:, None] * stride_bk, mask=live_k[:, None] & live_n[None, :], other=0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
        kk += BLOCK_K

    if BIAS_RELU:
        add = tl.load(bias_ptr + jn, mask=live_n, other=0).to(tl.float32)
        acc += add[None, :]
        acc = tl.maximum(acc, 0.0)

    target = c_ptr + im[:, None] * stride_cm + jn[None, :] * stride_cn
    tl.store(target, acc.to(c_ptr.dtype.element_ty), mask=live_m[:, None] & live_n[None, :])


def _launch(a, b, bias, out):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        *a.stride(), *b.stride(), *out.stride(),
        BIAS_RELU=bias is not None,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out)
