"""Names that people bring along from NumPy, PyTorch and CUDA, with what Triton has in their place."""

from __future__ import annotations

import builtins
import difflib
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

ROW_OF_PROGRAM = "`tl.program_id(axis)` is the number of a program, which works on a whole block"
# Of triton.language.
IN_TRITON = {
    **dict.fromkeys(
        ("gemm", "matmul", "mm", "bmm", "einsum", "mma", "wmma", "tensordot", "dot_product"),
        "the product of two blocks is `tl.dot`",
    ),
    **dict.fromkeys(
        ("reduce_max", "amax", "max_reduce", "row_max", "rowmax"), "the maximum of a block is `tl.max`"
    ),
    **dict.fromkeys(("reduce_min", "amin"), "the minimum of a block is `tl.min`"),
    **dict.fromkeys(
        ("reduce_sum", "row_sum", "rowsum", "nansum", "add_reduce"), "the sum of a block is `tl.sum`"
    ),
    **dict.fromkeys(("mean", "average"), "take `tl.sum`, and divide by the number of elements"),
    **dict.fromkeys(("var", "std", "variance"), "compute it from `tl.sum` of the squared differences"),
    **dict.fromkeys(("norm",), "compute it from `tl.sum` of the squares"),
    **dict.fromkeys(("inf", "infinity", "INFINITY"), 'it is `float("inf")`'),
    **dict.fromkeys(("nan", "NaN"), 'it is `float("nan")`'),
    **dict.fromkeys(("float", "fp32", "single", "f32"), "the dtype is `tl.float32`"),
    **dict.fromkeys(("half", "fp16", "f16"), "the dtype is `tl.float16`"),
    **dict.fromkeys(("bf16",), "the dtype is `tl.bfloat16`"),
    **dict.fromkeys(("double", "fp64", "f64"), "the dtype is `tl.float64`"),
    **dict.fromkeys(("int", "i32"), "the dtype is `tl.int32`"),
    **dict.fromkeys(("long", "i64", "size_t"), "the dtype is `tl.int64`"),
    **dict.fromkeys(("bool",), "the dtype is `tl.int1`"),
    **dict.fromkeys(
        ("threadIdx", "thread_id", "threadidx", "thread_idx", "tid", "lane_id", "get_thread_id", "local_id"),
        f"Triton has no threads to number; {ROW_OF_PROGRAM}",
    ),
    **dict.fromkeys(
        ("blockIdx", "block_id", "blockidx", "block_idx", "get_program_id", "pid"), ROW_OF_PROGRAM
    ),
    **dict.fromkeys(("gridDim", "grid_dim", "num_blocks", "program_count"), "it is `tl.num_programs(axis)`"),
    **dict.fromkeys(
        ("blockDim", "block_dim"), "the width of a block is a parameter of the kernel, a `tl.constexpr`"
    ),
    **dict.fromkeys(
        ("syncthreads", "__syncthreads", "sync", "barrier"), "a program needs none: Triton places barriers"
    ),
    **dict.fromkeys(("pow", "power"), "write `*`, or `tl.exp2(y * tl.log2(x))`"),
    **dict.fromkeys(("square",), "write `x * x`"),
    **dict.fromkeys(("fmax", "max_elementwise", "elementwise_max"), "of two blocks it is `tl.maximum`"),
    **dict.fromkeys(("fmin",), "of two blocks it is `tl.minimum`"),
    **dict.fromkeys(("relu",), "it is `tl.maximum(x, 0)`"),
    **dict.fromkeys(("empty", "zeros_block", "alloc"), "it is `tl.zeros(shape, dtype)`"),
    **dict.fromkeys(("ones", "ones_like"), "it is `tl.full(shape, 1, dtype)`"),
    **dict.fromkeys(("full_like",), "it is `tl.full(shape, value, dtype)`"),
    **dict.fromkeys(("concat", "concatenate", "hstack"), "it is `tl.cat`"),
    **dict.fromkeys(("stack",), "it is `tl.join`"),
    **dict.fromkeys(("transpose", "t", "swapaxes"), "it is `tl.trans`, or `.T`"),
    **dict.fromkeys(("unsqueeze",), "it is `x[:, None]`, or `tl.expand_dims`"),
    **dict.fromkeys(("astype", "convert", "to"), "it is `x.to(dtype)`, or `tl.cast`"),
    **dict.fromkeys(("select",), "it is `tl.where(condition, x, y)`"),
    **dict.fromkeys(("clip",), "it is `tl.clamp`"),
    **dict.fromkeys(("iota", "linspace"), "it is `tl.arange(start, end)`"),
    **dict.fromkeys(
        ("random", "rand_like", "uniform"), "random numbers are `tl.rand(seed, offsets)` or `tl.rand4x`"
    ),
    **dict.fromkeys(("normal",), "random numbers are `tl.randn(seed, offsets)`"),
    **dict.fromkeys(("ceil_div", "ceildiv", "div_up"), "it is `tl.cdiv`"),
    **dict.fromkeys(("next_power_of_2",), "host code has `triton.next_power_of_2`"),
    **dict.fromkeys(("read", "ld", "gload"), "it is `tl.load`"),
    **dict.fromkeys(("write", "st", "gstore", "save"), "it is `tl.store`"),
    **dict.fromkeys(("print",), "it is `tl.device_print`"),
    **dict.fromkeys(("logical_not",), "it is `~`"),
}
# Methods of a block, in a kernel.
OF_A_BLOCK = {
    **dict.fromkeys(("float", "fp32"), "it is `.to(tl.float32)`"),
    **dict.fromkeys(("half",), "it is `.to(tl.float16)`"),
    **dict.fromkeys(("bfloat16",), "it is `.to(tl.bfloat16)`"),
    **dict.fromkeys(("long",), "it is `.to(tl.int64)`"),
    **dict.fromkeys(("int",), "it is `.to(tl.int32)`"),
    **dict.fromkeys(("astype", "type_as"), "it is `.to(dtype)`"),
    **dict.fromkeys(("transpose", "t", "swapaxes", "mT"), "it is `.T`, or `tl.trans`"),
    **dict.fromkeys(("unsqueeze",), "it is `x[:, None]`"),
    **dict.fromkeys(("mean",), "take `tl.sum`, and divide by the number of elements"),
    **dict.fromkeys(
        ("append", "extend", "insert"), "a kernel has no lists that grow: keep values in variables"
    ),
    **dict.fromkeys(("item",), "a kernel's values stay on the GPU, and need no `.item()`"),
    **dict.fromkeys(("size",), "it is `.shape[axis]`"),
    **dict.fromkeys(("matmul", "mm", "dot"), "it is `tl.dot`"),
    **dict.fromkeys(("stride",), "a pointer knows no strides: pass them to the kernel"),
    **dict.fromkeys(("masked_fill",), "it is `tl.where`"),
}
OF_A_TENSOR = {  # in host code
    **dict.fromkeys(("strides",), "it is `x.stride(0)`, or `x.stride()` for all of them"),
    **dict.fromkeys(("length", "len"), "it is `x.numel()`, or `x.shape[0]`"),
    **dict.fromkeys(("ptr", "data", "pointer"), "a launch takes the tensor itself"),
    **dict.fromkeys(("numel_",), "it is `x.numel()`"),
    **dict.fromkeys(("astype",), "host code converts nothing: a kernel does"),
    **dict.fromkeys(("copy",), "the kernel writes to `out`"),
    **dict.fromkeys(
        ("item", "tolist", "numpy", "cpu"),
        "it reads a tensor's values, for which host code would wait for the GPU",
    ),
    **dict.fromkeys(("cuda",), "a new tensor takes its device from an input: `device=x.device`"),
}
KEYWORDS = {  # of calls: what the same argument is called here
    **dict.fromkeys(("default", "fill", "fill_value", "padding", "otherwise", "pad"), ("other", "value")),
    **dict.fromkeys(("dim", "dims", "axes", "dimension"), ("axis", "dim")),
    **dict.fromkeys(("keepdim", "keepdims", "keep_dim"), ("keep_dims",)),
    **dict.fromkeys(("cond", "predicate", "condition", "where"), ("mask", "condition")),
    **dict.fromkeys(("allow_fp32", "precision", "use_tf32", "tf32"), ("input_precision",)),
    **dict.fromkeys(("accumulator", "c", "accum", "out"), ("acc",)),
    **dict.fromkeys(("b", "rhs", "mat2"), ("other",)),
    **dict.fromkeys(("ptr", "address", "ptrs", "pointers"), ("pointer",)),
    **dict.fromkeys(("val", "values", "data"), ("value",)),
    **dict.fromkeys(("type", "dt", "out_type"), ("dtype", "out_dtype")),
    **dict.fromkeys(("eviction", "evict"), ("eviction_policy",)),
    **dict.fromkeys(("size", "length", "stop", "n"), ("end", "shape")),
}
SAYING_NOTHING = {"", "size", "sz", "ptr", "val", "value", "num", "idx", "len"}
PYTHON = frozenset(dir(builtins))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is nearly the same: but for underscores and capitals, or but for a few letters."""
    known = sorted(set(names) - {name})
    plain = _plain(name)
    if not plain:
        return None
    same = [one for one in known if _plain(one) == plain] or [
        one for one in known if _words(one) and _words(one) == _words(name)
    ]
    same += [one for one in known if len(name) > 3 and sorted(_plain(one)) == sorted(plain)]
    if same:
        return same[0]
    if len(name) < 3:
        return None
    return next(iter(difflib.get_close_matches(name, known, 1, 0.75)), None)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _words(name: str) -> set[str]:
    """The words of a name, without those that say nothing: BLOCK_SIZE_M has `block` and `m`."""
    return {one for one in name.lower().split("_") if one not in SAYING_NOTHING}


@lru_cache
def public(module: str) -> Sequence[str]:
    """The public names of a module: Triton's, PyTorch's tensors', or those of Python's math."""
    if module == "torch.Tensor":
        import torch

        return [one for one in dir(torch.Tensor) if not one.startswith("_")]
    if module == "math":
        return [one for one in dir(math) if not one.startswith("_")]
    import triton
    import triton.language as tl

    places = {"triton.language": tl, "triton": triton, "tl.tensor": tl.tensor}
    return [one for one in dir(places[module]) if not one.startswith("_")] if module in places else []
