# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | `pb += BLOCK_K * stride_bn` moves the pointers of b along its columns instead of along K (wrong from the second step on, for K > BLOCK_K); it should be `pb += BLOCK_K * stride_bk`.
import torch
import triton
import triton.language as tl


def _config(bm, bn, bk, stages, warps):
    return triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 4}, num_stages=stages, num_warps=warps
    )


CONFIGS = [_config(128, 128, 32, 4, 8), _config(64, 128, 32, 4, 4), _config(128, 64, 32, 4, 4), _config(64, 64, 32, 4, 4)]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    gm, gn = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = GROUP_M * gn
    first = tile // group * GROUP_M
    height = min(gm - first, GROUP_M)
    rest = tile % group
    return (first + rest % height) * BLOCK_M, rest // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    rn = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    rk = tl.arange(0, BLOCK_K)
    pa = a_ptr + rm * stride_am + rk[None, :] * stride_ak
    pb = b_ptr + rk[:, None] * stride_bk + rn * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        acc = tl.dot(
            tl.load(pa, mask=(rm < M) & (rk[None, :] < left), other=0.0),
            tl.load(pb, mask=(rk[:, None] < left) & (rn < N), other=0.0),
            acc,
            input_precision="ieee",
        )
        pa += BLOCK_K * stride_ak
        pb += BLOCK_K * stride_bn
    if BIAS_RELU:
        acc = tl.maximum(acc + tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + rm * stride_cm + rn * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(rm < M) & (rn < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
