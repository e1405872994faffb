# gpu-programming/triton-kernels/swiglu.py | error | In `swiglu_kernel`, `if block >= n_rows * blocks: return` stands inside of `for turn in range(TURNS)`: Triton does not compile a `return` within a `for` or `while` loop ("Cannot have `return` statements inside `while` or `for` statements"), so every launch on a GPU (every config, all sizes) is a compile error; Python's interpreter alone runs it. It should be `if block < n_rows * blocks:` around the rest of the body, or a mask that includes this condition.
"""SwiGLU, silu(gate) * up: each program takes several neighbouring blocks, one after the other."""

import torch
import triton
import triton.language as tl

# Numbers of a block, blocks of a program, warps.
CONFIGS = [
    triton.Config({"BLOCK": block, "TURNS": turns}, num_warps=warps)
    for block, turns, warps in ((1024, 2, 4), (1024, 4, 4), (2048, 1, 4), (2048, 2, 8), (4096, 1, 4), (4096, 2, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def gated(gate, up):
    """silu(gate) * up in fp32."""
    gate, up = gate.to(tl.float32), up.to(tl.float32)
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) of one dtype, columns contiguous
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    BLOCK: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Program i owns blocks i * TURNS to (i + 1) * TURNS - 1, counted row by row."""
    blocks = (n_cols - 1) // BLOCK + 1
    first = tl.program_id(axis=0) * TURNS
    for turn in range(TURNS):
        block = first + turn
        if block >= n_rows * blocks:
            # The last program has fewer blocks than the others.
            return
        row = (block // blocks).to(tl.int64)
        cols = (block % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        gate = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0)
        up = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0)
        result = gated(gate, up).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row * stride_out + cols, result, mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    def grid(meta):
        return (triton.cdiv(n_rows * triton.cdiv(n_cols, meta["BLOCK"]), meta["TURNS"]),)

    if gate.numel() > 0:
        swiglu_kernel[grid](
            gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
        )  # fmt: skip
    return out
