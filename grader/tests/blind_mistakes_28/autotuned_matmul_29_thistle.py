# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | flat_kernel starts with tile = pid, but adds the number of programs at the first step of every tile, also of the first: each program skips its first tile and ends with one past the end, which is masked away. In both functions tiles 0 to programs - 1 stay unwritten, in small results all of them, so every case is wrong. It must start at pid - programs.
"""Persistent matrix product in one flat loop: the steps along K of all tiles of a program in a row."""

import torch
import triton
import triton.language as tl


def _config(m, n, k, stages, warps):
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def drop_wide(configs, named_args, **kwargs):
    n_max = named_args["N"] if named_args["a_ptr"].dtype != torch.float32 else min(named_args["N"], 64)
    m_max = named_args["M"] if named_args["a_ptr"].dtype != torch.float32 else min(named_args["M"], 64)
    good = [c for c in configs if c.kwargs["BLOCK_M"] <= m_max and c.kwargs["BLOCK_N"] <= n_max]
    return good if good else [configs[-1]]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": drop_wide})
@triton.jit
def flat_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    down = tl.cdiv(M, BLOCK_M)
    tiles = down * tl.cdiv(N, BLOCK_N)
    k_steps = tl.cdiv(K, BLOCK_K)

    mine = tiles // programs
    if pid < tiles % programs:
        mine += 1

    tile = pid
    step = -1
    row = tl.arange(0, BLOCK_M).to(tl.int64)
    col = tl.arange(0, BLOCK_N).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, k_steps * mine):
        step = tl.where(step == k_steps - 1, 0, step + 1)
        if step == 0:
            # On to the next tile; tiles are counted down the columns of c.
            tile += programs
            row = (tile % down * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
            col = (tile // down * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        k = (step * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(
            a_ptr + row[:, None] * stride_am + k[None, :] * stride_ak,
            mask=(row[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * stride_bk + col[None, :] * stride_bn,
            mask=(k[:, None] < K) & (col[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
        if step == k_steps - 1:
            if BIAS_RELU:
                shift = tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)
                acc = tl.maximum(acc + shift[None, :], 0.0)
            tl.store(
                c_ptr + row[:, None] * stride_cm + col[None, :] * stride_cn,
                acc.to(c_ptr.dtype.element_ty),
                mask=(row[:, None] < M) & (col[None, :] < N),
            )
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)


def _start(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    if a.is_cuda:
        workers = torch.cuda.get_device_properties(a.device).multi_processor_count
    else:
        workers = 8
    grid = lambda meta: (  # noqa: E731
        min(workers, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),
    )
    flat_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _start(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _start(a, b, bias, out, bias_relu=True)
