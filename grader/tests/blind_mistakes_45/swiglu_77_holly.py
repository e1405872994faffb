# gpu-programming/triton-kernels/swiglu.py | corner | In `whole`, `args["n_cols"] % 512 == 0`: masks are left out if this holds, but blocks have 1024 columns or more; it should be `args["n_cols"] % args["BLOCK"] == 0`. Loads and stores go out of bounds where n_cols is a multiple of 512 and not of BLOCK: 512, 1536 (always, with BLOCK 1024), 2560, 3072 with 2048; all other lengths are right.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
    triton.Config({"BLOCK": 8192}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


def whole(args):
    """Rows of whole blocks need no mask."""
    return args["n_cols"] % 512 == 0


@triton.jit
def load_fp32(ptrs, inside, WHOLE: tl.constexpr):
    """A block of numbers in fp32, 0 past the end of the row."""
    if WHOLE:
        values = tl.load(ptrs, eviction_policy="evict_first")
    else:
        values = tl.load(ptrs, mask=inside, other=0.0, eviction_policy="evict_first")
    return values.to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE": whole})
@triton.jit
def swiglu_kernel(
    gate_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    up_ptr,  # (n_rows, n_cols) like gate
    out_ptr,  # (n_rows, n_cols) like gate
    n_cols,
    stride_gate,  # elements from one row of gate to the next
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """out = gate * sigmoid(gate) * up; a program owns BLOCK columns of one row."""
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    gate = load_fp32(gate_ptr + row * stride_gate + cols, inside, WHOLE)
    up = load_fp32(up_ptr + row * stride_up + cols, inside, WHOLE)
    y = (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty)
    out_ptrs = out_ptr + row * stride_out + cols
    if WHOLE:
        tl.store(out_ptrs, y)
    else:
        tl.store(out_ptrs, y, mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
