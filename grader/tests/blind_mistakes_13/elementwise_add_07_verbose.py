# labs/lab1_elementwise_add/elementwise_add.py | error | `number_of_elements = n.to(tl.int64)` does not compile for a vector of one element: an integer argument that is 1 is a constant and has no `.to`; the mask should compare with n itself.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # ---- TODO 1 -------------------------------------------------------------------------------
    # Everything that counts elements is 64 bits wide. Vectors with more than 2^31 elements exist
    # (4 GB in fp16), and an offset of 32 bits would wrap around to a negative number there.
    number_of_elements = n.to(tl.int64)
    program_number = tl.program_id(axis=0).to(tl.int64)
    offsets_of_program = program_number * BLOCK + tl.arange(0, BLOCK)
    offset_exists = offsets_of_program < number_of_elements

    # ---- TODO 2 -------------------------------------------------------------------------------
    # The mask keeps the last program away from memory that is not ours.
    block_of_x = tl.load(x_ptr + offsets_of_program, mask=offset_exists)
    block_of_y = tl.load(y_ptr + offsets_of_program, mask=offset_exists)
    block_of_sums = block_of_x + block_of_y
    tl.store(out_ptr + offsets_of_program, block_of_sums, mask=offset_exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    # ---- TODO 3 -------------------------------------------------------------------------------
    # Rounded up, because the last block may be a partial one. An empty vector needs no launch.
    number_of_elements = x.numel()
    if number_of_elements > 0:
        number_of_programs = triton.cdiv(number_of_elements, BLOCK)
        elementwise_add_kernel[(number_of_programs,)](x, y, out, number_of_elements, BLOCK=BLOCK)
    return out
