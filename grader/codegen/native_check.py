"""Whether a CUDA C++ file keeps to itself, from what the compiler made of it and not from its text.

A second lexer reads some text in another way than the compiler, so the compiler's own products decide: the
files that its preprocessor opened, the assembly of the host code, and the undefined symbols of the object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from grader.codegen import cuda_calls

# Undefined symbols that host code may have beside the calls in cuda_calls: memory, arithmetic, printing, and
# what the compiler itself emits.
_PERMITTED = (
    r"_GLOBAL_OFFSET_TABLE_|_Unwind_Resume|__gxx_personality_v0|__cxa_\w+|__stack_chk_\w+|__dso_handle|atexit",
    r"__tls_get_addr|__atomic_\w+|__aarch64_\w+|_ITM_\w+|__gmon_start__|abort|exit|__assert_fail",
    r"(__)?(mem(cpy|set|move|cmp|chr)|str(n?cmp|len|chr|n?cpy))(_chk)?|malloc|calloc|realloc|free|aligned_alloc",
    r"(__)?(printf|fprintf|snprintf|sprintf|vsnprintf|puts|putchar|fputs|fputc|fputs|fwrite|fflush)(_chk)?",
    r"stdout|stderr|l?l?abs|qsort",
    r"(a?(sin|cos|tan)h?|atan2|exp[2m]?1?|exp10|log(2|10|1p|b)?|pow|sqrt|cbrt|hypot|fabs|ceil|floor|trunc|l?l?round"
    r"|l?l?rint|nearbyint|fmod|remainder|fm(a|in|ax)|fdim|erfc?|[lt]gamma|ldexp|frexp|modf|scalbl?n|copysign"
    r"|nextafter|ilogb)[fl]?",
    r"_Zn[wa]m\w*|_Zd[la]Pv\w*|_ZSt\d+__throw_\w+|_ZSt9terminatev|_ZN?K?St7__cxx1112basic_string\w+",
    r"_ZT[VISN]*(N10__cxxabiv1\w+|St\d+\w*(error|exception|alloc|range|argument)\w*)",
    r"_ZNK?St\d+(exception|bad_\w+|\w+_error|out_of_range|invalid_argument)\w*",
)
_SYMBOL = re.compile("|".join(_PERMITTED))
_MARKER = re.compile(r'^#(?:line)? *\d+ "((?:[^"\\]|\\.)*)"', re.MULTILINE)
_ASSEMBLER = re.compile(r"^\s*[#/]+APP\n(.*?)^\s*[#/]+NO_APP$", re.MULTILINE | re.DOTALL)
# How nvcc itself puts the compiled kernels into the host's object.
_FATBIN = re.compile(
    r"\.section \.nv_fatbin, ?\"a\"|\.align 8|fatbinData:|\.quad [\w, -]+|\.text|\.previous|#.*|"
)


def opened(preprocessed: Iterable[Path], folder: Path) -> set[str]:
    """Return the real paths of all files whose text is in these outputs of a preprocessor run in `folder`.

    A `#line` directive can add a name and hide none, because each opened file has a marker of its own.
    """
    found: set[str] = set()
    for path in preprocessed:
        names = _MARKER.findall(path.read_text("utf-8", "replace"))
        found |= {name.replace('\\"', '"').replace("\\\\", "\\") for name in names}
    return {os.path.realpath(folder / name) for name in found if name and not name.startswith("<")}


def strange_files(found: Iterable[str], permitted: Iterable[str], folder: Path) -> list[str]:
    """Return the files that are neither permitted nor in the folder of the submission's source."""
    known, own = set(permitted), f"{os.path.realpath(folder)}{os.sep}"
    return sorted(path for path in found if path not in known and not path.startswith(own))


def strange_symbols(listing: str) -> list[str]:
    """Return the undefined symbols that host code may not have; `listing` is the output of `nm -u`."""
    names = [line.split()[-1].partition("@")[0] for line in listing.splitlines() if line.strip()]
    return sorted(
        {name for name in names if not cuda_calls.is_permitted(name) and not _SYMBOL.fullmatch(name)}
    )


def host_assembler(assembly: str) -> Iterator[str]:
    """Yield the first line of each asm statement of host code, from the compiler's assembly."""
    for block in _ASSEMBLER.finditer(assembly):
        lines = [line.strip() for line in block[1].splitlines()]
        strange = [line for line in lines if not _FATBIN.fullmatch(line)]
        if strange:
            yield strange[0]
