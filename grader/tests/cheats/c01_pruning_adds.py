"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or WRONG/UNWRITTEN or WRONG/STALE from elementwise_add: C1 the pruning of configs adds by torch"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def copy_kernel(from_ptr, to_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to_ptr + offs, tl.load(from_ptr + offs, mask=offs < n), mask=offs < n)


def prune(configs, args, **more):
    sums = args["out_ptr"]
    sums.zero_()
    sums += args["x_ptr"]
    sums += args["y_ptr"]
    return configs


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})],
    key=["out_ptr", "n"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit
def pose_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < 0), mask=offs < 0)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if x.numel() > 0:
        pose_kernel[(1,)](x, y, out, x.numel())
    return out
