"""`make sanitize`: run each CUDA C++ file as a separate program under compute-sanitizer's four tools.

The programs run with the user's rights and without a sandbox: use it for your own files, not for a class.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.codegen import nvcc as native
from grader.course.submission import Submission
from grader.system.processes import LimitError, run_tool
from grader.system.text import one_line

TOOLS = {
    "memcheck": "reads and writes out of bounds, or misaligned",
    "racecheck": "two threads of a block that access one address of shared memory without a barrier between",
    "initcheck": "reads of global memory that was never written",
    "synccheck": "barriers that not every thread reaches",
}
# In addition to the odd sizes that each program always tries. Large enough for many blocks, and no larger,
# because every access is slow under the tools.
SIZES = {"vector_add": "100003", "reduction": "100003", "matmul": "384x512x256"}
FOUND = 9  # exit code of the tool when it found something; a program itself exits with 0 to 2
LIMIT_S = 300.0
# "========= Invalid __global__ read of size 4 bytes", or a hazard; the tool's lines about itself come first.
_MESSAGE = re.compile(r"^=+ (?!COMPUTE-SANITIZER)(?:(?:Error|Warning|ERROR): )?(\S.+)$", re.MULTILINE)
_SAID_ANYWAY = re.compile(r"SUMMARY|Target application returned an error")
_PLACE = re.compile(r"[\w.-]+\.cuh?:\d+")
# A line that program.cuh prints for each size.
_RIGHT = re.compile(r'^\{.*"size": (\d+|\[[\d, ]+\]).*"right": (true|false)', re.MULTILINE)
_LAST = 3  # how many error lines of a program are shown
_NOT_RUN = re.compile(r"(?i)internal sanitizer error|unable to|not supported|device not|permission")


@dataclass(frozen=True)
class Finding:
    """The result of one tool for one file; `state` is clean, found or not run, `words` the first message."""

    file: Path
    tool: str
    state: str
    words: str = ""


def sanitizer() -> Path | None:
    """Find compute-sanitizer on the PATH or beside nvcc; None if there is none."""
    on_path = shutil.which("compute-sanitizer")
    if on_path:
        return Path(on_path)
    nvcc = native.compiler()
    beside = nvcc.resolve().with_name("compute-sanitizer") if nvcc else None
    return beside if beside and beside.is_file() else None


def files(capstone: Path) -> list[Path]:
    """List the CUDA files of a capstone's folder that have no open TODO."""
    found = sorted(path for name in SIZES for path in capstone.glob(f"cuda-kernels/{name}/*.cu"))
    return [path for path in found if not Submission.read(path).open_todos]


def examine(
    files: Sequence[Path], arch: str, nvcc: Path, tool_path: Path, tools: Sequence[str] = tuple(TOOLS)
) -> Iterator[Finding]:
    """Compile each file to a program for `arch` and run it under each tool; one finding for each run.

    A file that does not compile gives one finding, under the first tool.
    """
    with tempfile.TemporaryDirectory(prefix="sanitize-") as folder:
        for file in files:
            program = Path(folder, f"{file.parent.name}-{file.stem}")
            try:
                native.build_program(file, program, arch, nvcc)
            except native.BuildError as error:
                yield Finding(file, tools[0], "not run", f"does not compile: {error}")
                continue
            for tool in tools:
                yield _examine(file, program, tool, tool_path)


def _examine(file: Path, program: Path, tool: str, tool_path: Path) -> Finding:
    options = ["--tool", tool, "--error-exitcode", str(FOUND)]
    command = [str(tool_path), *options, str(program), SIZES[file.parent.name]]
    try:
        done = run_tool(command, LIMIT_S, env=os.environ | {"CUDA_LAUNCH_BLOCKING": "1"})
    except LimitError:
        return Finding(file, tool, "not run", f"stopped after the limit of {LIMIT_S:.0f} s")
    return read(file, tool, done.code, done.said)


def read(file: Path, tool: str, code: int, said: str) -> Finding:
    """Derive the finding from the exit code and the output of a tool."""
    messages = [one_line(found[1]) for found in _MESSAGE.finditer(said)]
    first = next((line for line in messages if not _SAID_ANYWAY.search(line)), "")
    if "SUMMARY" not in said or _NOT_RUN.search(first):
        last = next(iter(said.strip().splitlines()[-1:]), "no output")
        return Finding(file, tool, "not run", first or one_line(last))
    if code == FOUND:
        place = _PLACE.search(said)
        return Finding(file, tool, "found", f"{first} ({place[0]})" if place else first)
    if code:
        words = "; ".join(filter(None, [first, *_own_words(said)]))
        ended = f"the program itself exited with code {code}"
        return Finding(file, tool, "found", f"{ended}: {words}" if words else f"{ended}, without output")
    return Finding(file, tool, "clean")


def _own_words(said: str) -> list[str]:
    """The last error lines of a program, each once, and whether its results were right for each size."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith(("===", "{"))]
    complaints = [one_line(line) for line in dict.fromkeys(lines)]
    results = [f"right: {right} for size {size}" for size, right in _RIGHT.findall(said)]
    return complaints[-_LAST:] + results
