"""CUDA C++ that nvcc refuses: its messages in the words of the language."""

from __future__ import annotations

import re

from grader.course.native_headers import HEADERS
from grader.judge.error_causes.failed import Failed
from grader.judge.error_causes.known_names import nearest

BUILT_IN = {  # names that every file has, and the header of those that need one
    **dict.fromkeys(
        (
            "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "dim3", "__syncthreads", "__syncwarp",
            "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync",
            "__any_sync", "__all_sync", "__activemask", "__threadfence", "__ldg", "__ldcs", "__stcs",
            "atomicAdd", "atomicMax", "atomicMin", "atomicCAS", "atomicExch", "float2", "float4",
            "make_float2", "make_float4", "make_int4", "cudaGetLastError", "cudaSuccess", "cudaStream_t",
            "cudaError_t", "cudaMemsetAsync", "cudaErrorInvalidValue", "fmaf", "fmaxf", "fminf", "expf",
            "__expf", "sqrtf", "rsqrtf", "__shared__", "__device__", "__global__", "__restrict__",
            "__launch_bounds__", "__forceinline__", "printf",
        ),
        "",
    ),
    **dict.fromkeys(
        ("__nv_bfloat16", "__nv_bfloat162", "__bfloat162float", "__float2bfloat16", "__float2bfloat16_rn"),
        "cuda_bf16.h",
    ),
    **dict.fromkeys(("__half", "half", "__half2", "half2", "__half2float", "__float2half"), "cuda_fp16.h"),
    **dict.fromkeys(("uintptr_t", "uint32_t", "uint64_t", "int32_t", "int64_t", "uint8_t"), "cstdint"),
    **dict.fromkeys(("nvcuda", "wmma"), "mma.h"),
}  # fmt: skip
_OLD_SHUFFLE = re.compile(r"__(?:shfl|ballot|any|all)(?:_up|_down|_xor)?")
_UNDEFINED = re.compile(
    r'identifier "(\w+)" is undefined|name followed by "::" must be a class or namespace name'
)
_CALLED = re.compile(
    r'calling a (?:constexpr )?__host__ function\("?(.+?)"?\) from a __(?:global|device)__ function'
)
_VALUE = re.compile(
    r'value of type "(.+?)" cannot be (?:used to initialize|assigned to) an entity of type "(.+?)"'
)
_CONVERT = re.compile(
    r'no suitable (?:constructor|conversion function|user-defined conversion).* from "(.+?)" to "(.+?)"'
)
_OPERATOR = re.compile(r'no operator "(.+?)" matches')
_ARGUMENT = re.compile(r'argument of type "(.+?)" is incompatible with parameter of type "(.+?)"')
_SHARED = re.compile(r"uses too much shared data \((0x[0-9a-f]+|\d+) bytes, (0x[0-9a-f]+|\d+) (?:bytes )?max")
_LAUNCH = re.compile(r"(\w+)\s*(?:<[^<>]*>)?\s*<<<")
_CALL = re.compile(r"(\w+)\s*\(")


def undefined(failed: Failed) -> str | None:
    """A name that is declared nowhere."""
    found = _UNDEFINED.search(failed.text)
    if not found:
        return None
    name = found[1] or next(iter(re.findall(r"(\w+)\s*::", failed.code)), "")
    if not name:
        return None
    if _OLD_SHUFFLE.fullmatch(name) and f"{name}_sync" in BUILT_IN:
        return (
            f"`{name}` is gone: `{name}_sync` takes the mask of the lanes that take part as its "
            "first argument"
        )
    header = BUILT_IN.get(name, "")
    if header in HEADERS:
        return f"`{name}` is declared in `<{header}>`, which the file does not include"
    own = re.findall(r"[A-Za-z_]\w*", "\n".join(re.sub(r"//.*", "", line) for line in failed.source.lines))
    seldom = {one for one in own if own.count(one) > 1}
    near = nearest(name, (seldom | set(BUILT_IN)) - _keywords())
    if near:
        return f"`{name}` is declared nowhere; the nearest name is `{near}`"
    return f"`{name}` is declared nowhere that this line sees"


def _keywords() -> set[str]:
    return {"if", "for", "int", "float", "const", "return", "void", "while", "else", "static_cast", "long"}


def punctuation(failed: Failed) -> str | None:
    """A sign that is missing."""
    found = re.search(r'expected an? "(.)"', failed.text)
    if found and found[1] == ";":
        before = failed.source.lines[failed.line - 2].strip() if failed.line > 1 else ""
        where = "at the end of the line before" if before and before[-1] not in ";{}" else "in this line"
        return f"a `;` is missing {where}"
    if found:
        return f"a `{found[1]}` is missing at this place"
    if re.search(
        r"linkage specification is not allowed|nested function|function definition is not allowed",
        failed.text,
    ):
        return "a `}` is missing above: this function begins inside of another"
    if re.search(r"reached end of (?:file|source)|at end of source", failed.text):
        return "a `}` is missing: the file ends inside of a block"
    if re.search(r"expected a declaration", failed.text):
        return "this line stands outside of every function: a `}` above it is one too many"
    if re.search(r"expected an expression", failed.text):
        return "a value is missing here, or a sign is one too many"
    return None


def launch(failed: Failed) -> str | None:
    """Kernels that are not launched as kernels are, and what they may return."""
    text = failed.text
    if re.search(r"__global__ function call must be configured", text):
        return (
            "a kernel is launched with its blocks and threads: `kernel<<<blocks, threads, 0, stream>>>(...)`"
        )
    two = re.search(r"\w\s*<<[^<].*[^>]>>\s*\(", failed.code)
    if two and "<<<" not in failed.code:
        return "a launch has three angle brackets on each side: `<<<` and `>>>`"
    if re.search(r"only allowed on a __global__ function", text):
        return "`__global__` is missing before this function, so it is no kernel"
    if re.search(r"__global__ function must have a void return type", text):
        return "a `__global__` function returns `void`: results go through a pointer"
    found = _CALLED.search(text)
    if found:
        name = found[1].partition("(")[0]
        if re.search(rf"\bstd::{re.escape(name)}\b", failed.code):
            return f"`std::{name}` is host code: device code has functions of its own, without `std::`"
        return f"`{name}` is host code, and a kernel calls it: `__device__` is missing before it"
    found = re.search(r'calling a __device__ function\(.*\) from a __host__ function\("?(\w+)', text)
    if found:
        return (
            f"`{found[1]}` is host code, and uses what only a GPU has: "
            "`__device__` is missing before it, if kernels call it"
        )
    return None


def arguments(failed: Failed) -> str | None:
    """Arguments that are too few, too many, or of another type."""
    text = failed.text
    count = re.search(r"too (few|many) arguments in (?:function )?call", text)
    named = _LAUNCH.search(failed.code) or _CALL.search(failed.code)
    called = named[1] if named else ""
    if re.search(r"__\w+_sync\s*\(", failed.code) and (count or "no instance of" in text):
        name = re.search(r"__\w+_sync", failed.code)
        return (
            f"the first argument of `{name[0] if name else ''}` is the mask of the lanes, "
            "`0xffffffff` for all 32"
        )
    if count and called:
        return (
            f"`{called}` takes {'more' if count[1] == 'few' else 'fewer'} arguments: too {count[1]} "
            "are given here"
        )
    found = re.search(
        r'no instance of (?:overloaded )?function (?:template )?"(.+?)" matches the argument list', text
    )
    if found:
        return (
            f"no function `{found[1]}` takes arguments of these types: look at the number and the "
            "types of each"
        )
    found = _ARGUMENT.search(text)
    if found:
        return f"a value of type `{found[1]}` is passed where `{found[2]}` is wanted"
    return None


def types(failed: Failed) -> str | None:
    """Values that do not fit the type that they go to."""
    text = failed.text
    found = _CONVERT.search(text) or _VALUE.search(text)
    if found:
        source, target = found[1], found[2]
        vector = re.search(r"(?:float|int|double)[234]", target)
        if vector and "*" not in target:
            return (
                f"a `{vector[0]}` is not made from one `{source.replace('const ', '')}`: "
                "read it through a cast of the address, with `reinterpret_cast`"
            )
        if vector:
            return (
                f"`{source}` and `{target}` are different types: a pointer needs `reinterpret_cast<{target}>`"
            )
        return f"a value of type `{source}` does not fit the type `{target}`"
    found = _OPERATOR.search(text)
    if found:
        if found[1] == "=" or (
            re.search(r"bfloat16|half", "".join(failed.source.lines[:40])) and found[1] == "="
        ):
            kind = _small_type(failed)
            return f"the types on both sides of `=` do not fit{kind}"
        if re.search(r"float[234]", "\n".join(failed.source.lines)):
            return (
                f"`float4` and its like have no operator `{found[1]}`: write it for each of their "
                "parts, `.x` and so on"
            )
        return f"no operator `{found[1]}` takes values of these types"
    found = re.search(r'class "(\w+)" has no member "(\w+)"', text)
    if found:
        parts = re.fullmatch(r"(?:u?int|float|dim|double)([234])", found[1])
        has = f"; it has {', '.join(f'`{one}`' for one in 'xyzw'[: int(parts[1])])}" if parts else ""
        return f"a `{found[1]}` has no part `{found[2]}`{has}"
    if re.search(r"must have (?:integral|arithmetic)[\w ]* type", text):
        return "an operator here takes numbers, and gets a value of another type, such as a pointer"
    if re.search(r"must be a modifiable lvalue", text):
        return "what is written to here is `const`, or no variable"
    if re.search(r"qualifiers dropped|drops? .*const|casts? away const", text):
        return "a cast may not take away `const`"
    if re.search(r"expression must have a constant value|array bound|variable length array", text):
        return "the size of an array must be a constant of compilation, also of a `__shared__` one"
    if re.search(r"has already been declared|redefinition|has already been defined", text):
        return "this name is declared twice in the same block"
    if re.search(r"expression must have (?:pointer|class)", text):
        return "this value is no pointer, or no struct, and is used as one"
    return None


def _small_type(failed: Failed) -> str:
    for kind, function in (("__nv_bfloat16", "__float2bfloat16_rn"), ("__half", "__float2half")):
        if any(kind in line for line in failed.source.lines):
            return f": a `{kind}` is made from a `float` by `{function}`"
    return ""


def limits(failed: Failed) -> str | None:
    """What a block of threads cannot have."""
    found = _SHARED.search(failed.text)
    if found:
        used, most = (int(one, 0) for one in found.groups())
        return f"the block has {used // 1024} KB of static shared memory, and {most // 1024} KB is the limit"
    return None


def include(failed: Failed) -> str | None:
    """A header that is not there, or not permitted."""
    found = re.search(
        r'cannot open source file "(.+?)"|(\S+?)(?:: No such file| is not on the list)', failed.text
    )
    if not found:
        return None
    name = found[1] or found[2].strip('`<>"')
    return f"the header `{name}` is not among those that a file may include"


RULES = (limits, launch, punctuation, undefined, arguments, types, include)
