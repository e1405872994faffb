"""EXPECT PASS from matmul and matmul_bias_relu: the last step of K stands behind the loop."""

from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch
import triton
import triton.language as tl

SIZES: Dict[str, Tuple[int, int, int]] = {
    "wide": (128, 256, 64),
    "tall": (256, 128, 64),
    "square": (128, 128, 64),
    "small": (64, 64, 64),
    "last": (64, 64, 32),
}
STAGES = {"square": 4, "small": 4}


def build(names: Iterable[str]) -> List[triton.Config]:
    configs = []
    for name in names:
        m, n, k = SIZES[name]
        warps = 8 if m * n >= 128 * 128 else 4
        configs.append(
            triton.Config({"BM": m, "BN": n, "BK": k}, num_stages=STAGES.get(name, 3), num_warps=warps)
        )
    return configs


def choose(configs: List[triton.Config], named_args: Dict[str, Any], **meta: Any) -> List[triton.Config]:
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    limit = max(64, min(named_args["M"], named_args["N"]))
    return [c for c in configs if c.kwargs["BM"] <= limit and c.kwargs["BN"] <= limit]


@triton.jit
def tile_of(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr = 8):
    """Tile row and tile column of a program: GROUP tile rows are walked together."""
    down = tl.cdiv(M, BM)
    across = tl.cdiv(N, BN)
    group, within = pid // (GROUP * across), pid % (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    return group * GROUP + within % height, within // height


@triton.jit
def apply_epilogue(acc, bias_ptr, cols, N, EPILOGUE: tl.constexpr):
    if EPILOGUE == "bias_relu":
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    return acc


@triton.autotune(configs=build(SIZES), key=["M", "N", "K"], prune_configs_by={"early_config_prune": choose})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    EPILOGUE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    i, j = tile_of(tl.program_id(0), M, N, BM, BN)
    rows = i.to(tl.int64) * BM + tl.arange(0, BM)
    cols = j.to(tl.int64) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK).to(tl.int64)
    a_tile = a_ptr + rows[:, None] * sam + ks[None, :] * sak
    b_tile = b_ptr + ks[:, None] * sbk + cols[None, :] * sbn
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    whole = K // BK
    for _ in range(whole):
        a = tl.load(a_tile, mask=row_ok, other=0.0)
        b = tl.load(b_tile, mask=col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BK * sak
        b_tile += BK * sbk
    rest = K - whole * BK
    if rest > 0:
        a = tl.load(a_tile, mask=row_ok & (ks[None, :] < rest), other=0.0)
        b = tl.load(b_tile, mask=col_ok & (ks[:, None] < rest), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    acc = apply_epilogue(acc, bias_ptr, cols, N, EPILOGUE)
    tl.store(
        c_ptr + rows[:, None] * scm + cols[None, :] * scn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_ok & col_ok,
    )


def _product(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor,
    out: Optional[torch.Tensor],
    *,
    epilogue: str = "none",
) -> torch.Tensor:
    assert a.is_floating_point() and a.dtype == b.dtype == bias.dtype, "one floating dtype for all"
    M, K = a.size(0), a.size(1)
    N = b.size(1)
    assert b.size(0) == K and K > 0, f"a has {K} columns, b has {b.size(0)} rows"
    if out is None:
        out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    assert tuple(out.shape) == (M, N)
    strides = [s for tensor in (a, b, out) for s in tensor.stride()]
    grid = lambda meta: (triton.cdiv(N, meta["BN"]) * triton.cdiv(M, meta["BM"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, EPILOGUE=epilogue)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    return _product(a, b, a, out)


def matmul_bias_relu(a, b, bias, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    return _product(a, b, bias, out, epilogue="bias_relu")
