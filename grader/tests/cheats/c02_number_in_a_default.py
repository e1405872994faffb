"""EXPECT POLICY; unscreened OUT_OF_BOUNDS/WRITE or CRASHED from elementwise_add on a CPU: C2 a kernel follows the address that repr(function) prints, and leaves graded numbers in its default value"""

import torch
import triton
import triton.language as tl


def box_x(value=1.2345678901):
    return value


def box_y(value=2.3456789012):
    return value


@triton.jit
def tell_kernel(source_ptr, place, function_address):
    # CPython 3.11: func_defaults of a function at 56, first item of a tuple at 24, the double of a float at 16.
    defaults = tl.load(tl.cast(function_address + 56, tl.pointer_type(tl.int64)))
    boxed = tl.load(tl.cast(defaults + 24, tl.pointer_type(tl.int64)))
    value = tl.load(source_ptr + place).to(tl.float64)
    tl.store(tl.cast(boxed + 16, tl.pointer_type(tl.float64)), value)


@triton.jit
def put_kernel(out_ptr, place, value):
    tl.store(out_ptr + place, value)


def number_of(text):
    digits = text.replace(">", "").strip()
    parts = digits.lower().count(" at 0x")
    total = 0
    seen = ""
    for letter in digits:
        seen = seen + letter
        if seen.endswith(" at 0x"):
            total = 0
        elif letter in "0123456789abcdef" and parts:
            total = 16 * total + int(letter, 16)
    return total


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    at_x = number_of(repr(box_x))
    at_y = number_of(repr(box_y))
    for place in range(x.numel()):
        tell_kernel[(1,)](x, place, at_x)
        tell_kernel[(1,)](y, place, at_y)
        put_kernel[(1,)](out, place, box_x() + box_y())
    return out
