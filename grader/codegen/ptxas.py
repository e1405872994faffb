"""The report of ptxas about the kernels of a CUDA C++ file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


@dataclass(frozen=True)
class Kernel:
    """One kernel for one architecture, from the report of ptxas."""

    name: str  # with its namespaces, without its arguments
    arch: str
    spill_bytes: int  # spill stores plus spill loads, of a thread
    symbol: str = ""  # its name for the linker
    registers: int = 0  # of a thread
    shared_bytes: int = 0  # of a block, those of a fixed size


def kernels(said: str) -> Iterator[Kernel]:
    """Parse the report of `ptxas -v`: for each kernel its name, followed by what it spills."""
    symbol, arch, spilled = "", "", 0
    for line in said.splitlines():
        if entry := _ENTRY.search(line):
            symbol, arch, spilled = entry[1], entry[2], 0
        elif spill := _SPILL.search(line):
            spilled = int(spill[1]) + int(spill[2])
        elif symbol and (used := _USED.search(line)):
            yield Kernel(plain_name(symbol), arch, spilled, symbol, int(used[1]), int(used[2] or 0))
            symbol = ""


def plain_name(mangled: str) -> str:
    """Return `ns::tile_kernel` for `_ZN2ns11tile_kernelILi128EEEvPf`; other names are not changed."""
    start = re.match(r"_ZN?", mangled)
    at, parts = start.end() if start else len(mangled), []
    while length := re.match(r"\d+", mangled[at:]):
        at += length.end()
        parts.append(mangled[at : at + int(length[0])])
        at += int(length[0])
    return "::".join(parts) or mangled
