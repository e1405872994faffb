# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | At the end of the K loop `pb += BLOCK_K * sbn` moves the tile of b along its columns; it should be `pb += BLOCK_K * sbk` (wrong for K > BLOCK_K).
import torch
import triton
import triton.language as tl


def _config(bm, bn, bk, stages, warps, group=8):
    return triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": group}, num_stages=stages, num_warps=warps
    )


CONFIGS = [
    _config(*shape)
    for shape in [
        (128, 256, 64, 4, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 32, 4, 4),
        (64, 128, 32, 4, 4),
        (64, 64, 32, 3, 4),
        (16, 16, 32, 2, 2),
    ]
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(t, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tm, tn = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    g = t // (GROUP_M * tn)
    r = t % (GROUP_M * tn)
    h = tl.minimum(tm - g * GROUP_M, GROUP_M)
    return (g * GROUP_M + r % h) * BLOCK_M, r // h * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]
    j = n.to(tl.int64) + tl.arange(0, BLOCK_N)[None, :]
    ka = tl.arange(0, BLOCK_K)[None, :].to(tl.int64)
    kb = tl.arange(0, BLOCK_K)[:, None].to(tl.int64)
    pa = a_ptr + i * sam + ka * sak
    pb = b_ptr + kb * sbk + j * sbn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(pa, mask=(i < M) & (ka + k < K), other=0.0)
        y = tl.load(pb, mask=(kb + k < K) & (j < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        pa += BLOCK_K * sak
        pb += BLOCK_K * sbn
    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.where(acc > 0, acc, 0.0)
    tl.store(c_ptr + i * scm + j * scn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, True)
