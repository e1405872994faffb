"""EXPECT PASS from matmul and matmul_bias_relu: a large space of configs, pruned by their cost."""

import torch
import triton
import triton.language as tl


def space():
    for bm in (32, 64, 128):
        for bn in (32, 64, 128, 256):
            for stages in (3, 4):
                warps = 8 if bm * bn >= 128 * 128 else 4
                yield triton.Config(
                    {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": 64}, num_warps=warps, num_stages=stages
                )


def affordable(configs, named_args, **options):
    """Those that fit 96 KB of shared memory; then the four whose tiles are nearest to the size of c."""
    item = named_args["a_ptr"].element_size()
    limit = 64 * 64 if item == 4 else 128 * 256

    def shared(config):
        tile = config.kwargs
        return config.num_stages * (tile["BLOCK_M"] + tile["BLOCK_N"]) * tile["BLOCK_K"] * item

    def misfit(config):
        tile = config.kwargs
        return abs(tile["BLOCK_M"] - named_args["M"]) + abs(tile["BLOCK_N"] - named_args["N"])

    fitting = [
        config
        for config in configs
        if shared(config) <= 96 * 1024 and config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"] <= limit
    ]
    return sorted(fitting, key=misfit)[:4]


@triton.autotune(list(space()), key=["M", "N", "K"], prune_configs_by={"early_config_prune": affordable})
@triton.jit
def pruned_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr,
    M, N, K,
    sa, ta, sb, tb, sc, tc,
    FUSED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Eight tiles high, then on to the right; a shorter band is left at the bottom.
    band, at = tl.program_id(0) // (8 * tl.cdiv(N, BLOCK_N)), tl.program_id(0) % (8 * tl.cdiv(N, BLOCK_N))
    height = tl.minimum(8, tl.cdiv(M, BLOCK_M) - 8 * band)
    om = (8 * band + at % height).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    on = (at // height).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ok = tl.arange(0, BLOCK_K)
    m_mask, n_mask = om < M, on < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        k_mask = ok + k < K
        a = tl.load(a_ptr + om[:, None] * sa + (ok + k)[None, :] * ta, m_mask[:, None] & k_mask[None, :], 0.0)
        b = tl.load(b_ptr + (ok + k)[:, None] * sb + on[None, :] * tb, k_mask[:, None] & n_mask[None, :], 0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if FUSED:
        acc = tl.maximum(acc + tl.load(bias_ptr + on, n_mask, 0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + om[:, None] * sc + on[None, :] * tc, acc, m_mask[:, None] & n_mask[None, :])


def _launch(a, b, c, bias, fused):
    def grid(meta):
        return (triton.cdiv(c.size(0), meta["BLOCK_M"]) * triton.cdiv(c.size(1), meta["BLOCK_N"]),)

    pruned_kernel[grid](
        a, b, c, bias, c.size(0), c.size(1), a.size(1), *a.stride(), *b.stride(), *c.stride(), FUSED=fused
    )
    return c


def new(a, b):
    return torch.empty(a.size(0), b.size(1), dtype=a.dtype, device=a.device)


def matmul(a, b, *, out=None):
    return _launch(a, b, new(a, b) if out is None else out, b, fused=False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _launch(a, b, new(a, b) if out is None else out, bias, fused=True)
