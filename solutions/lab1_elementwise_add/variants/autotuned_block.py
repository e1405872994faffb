"""EXPECT PASS from elementwise_add: block size and warps come from the autotuner."""

import torch
import triton
import triton.language as tl

SPACE = [
    triton.Config({"BLOCK_SIZE": size}, num_warps=warps)
    for size in (512, 1024, 4096)
    for warps in (4, 8)
    if size >= 128 * warps
]


@triton.autotune(configs=SPACE, key=["n_elements"])
@triton.jit
def tuned_add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid.to(tl.int64) * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    output = x + y
    tl.store(output_ptr + offsets, output, mask=mask)


def programs(n_elements):
    """The grid as a function of the config that is about to run."""
    return lambda config: (triton.cdiv(n_elements, config["BLOCK_SIZE"]),)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError("x and y differ in shape or dtype")
    if out is None:
        out = torch.empty_like(x)
    n_elements = out.numel()
    if n_elements == 0:
        return out
    tuned_add_kernel[programs(n_elements)](x, y, out, n_elements)
    return out
