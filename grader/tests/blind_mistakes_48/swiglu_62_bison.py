# gpu-programming/triton-kernels/swiglu.py | corner | In `swiglu`, `if gate.is_contiguous() and up.is_contiguous():` decides that the matrices are one long row, and forgets `out`: it should also ask for `out.is_contiguous()`. Shows only where gate and up have no gaps and `out` has (rows padded or far apart, more than one row), as 3 x 130 fp16 with only `out` far: values land in the space between rows and later rows stay unwritten.
"""SwiGLU, silu(gate) * up, by a fixed number of programs that walk over all blocks; autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_stages=1, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8))
]
WAVES = 16  # programs for each multiprocessor


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = gate / (1 + exp(-gate)) * up; block b has BLOCK columns of row b // (blocks of a row)."""
    blocks = tl.cdiv(n_cols, BLOCK)
    for block in range(tl.program_id(axis=0), n_rows * blocks, tl.num_programs(axis=0)):
        row = tl.cast(block // blocks, tl.int64)
        # A matrix without gaps comes as one row, which may have more than 2^31 columns.
        cols = tl.cast(block % blocks, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        mask = cols < n_cols
        gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
        result = gate / (1.0 + tl.exp(-gate)) * up
        tl.store(
            out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask
        )


def programs(device, blocks):
    """The number of programs for so many blocks."""
    if device.type != "cuda":
        return min(blocks, WAVES)
    return min(blocks, WAVES * torch.cuda.get_device_properties(device).multi_processor_count)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape
    if gate.is_contiguous() and up.is_contiguous():
        n_rows, n_cols = 1, n_rows * n_cols

    def grid(meta):
        return (programs(gate.device, n_rows * triton.cdiv(n_cols, meta["BLOCK"])),)

    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )  # fmt: skip
    return out
