"""Choose the kernel file of a step of the kernel log, and copy it for the measurement."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from grader.measure.kernel_log.record import FILE_NAME, MOST_FILES, op_of
from grader.measure.kernel_log.store import FILE_BYTES, LogError, read
from grader.system.text import one_line

_LINE = re.compile(
    r'^[ \t]*#[ \t]*(if|ifdef|ifndef|endif|include)\b[ \t]*(?:"([^"\n]+)"|([^\n]*))', re.MULTILINE
)


def choose(tree: Path, file: Path | None) -> Path:
    """Return the kernel file named `file`, or the one that was changed last; LogError if there is none."""
    root = tree.resolve()
    kernels = [*root.glob("cuda-kernels/*/*.cu"), *root.glob("triton-kernels/*.py")]
    kernels = [path for path in kernels if op_of(path.relative_to(root).as_posix()) and path.is_file()]
    if not kernels:
        raise LogError(f"no kernel file below {one_line(tree.name)}/cuda-kernels or triton-kernels")
    if file is None:
        return max(kernels, key=lambda path: path.stat().st_mtime)
    named = [path for path in kernels if path in (file.resolve(), (root / file).resolve())]
    named = named or [path for path in kernels if path.name == str(file)]
    if len(named) != 1:
        why = "names more than one file" if named else "is not a kernel file"
        raise LogError(f"{one_line(str(file))} {why}: write it as in FILE=cuda-kernels/matmul/01_naive.cu")
    return named[0]


def snapshot(path: Path, target: Path) -> dict[str, str]:
    """Copy a kernel file and the headers beside it that it includes; return the sha256 of each by name."""
    names, digests = [path.name], {}
    for name in names:  # grows during the loop
        if len(names) > MOST_FILES or not re.fullmatch(FILE_NAME, name):
            raise LogError(f"{one_line(name)}: a step has at most {MOST_FILES} files with plain names")
        data = read(path.with_name(name), FILE_BYTES)
        (target / name).write_bytes(data)
        digests[name] = hashlib.sha256(data).hexdigest()
        if path.suffix == ".cu":
            wanted = quoted(data.decode("utf-8", errors="replace"))
            names += [one for one in wanted if one not in names and path.with_name(one).exists()]
    return digests


def quoted(source: str) -> list[str]:
    """List the headers included with quotes, without those inside of `#ifndef NO_PROGRAM`."""
    found, depth, program = [], 0, 0
    for word, name, rest in _LINE.findall(source):
        if word == "endif":
            program = 0 if depth == program else program
            depth -= 1
        elif word != "include":
            depth += 1
            if word == "ifndef" and rest.strip() == "NO_PROGRAM" and not program:
                program = depth
        elif name and not program:
            found.append(name)
    return list(dict.fromkeys(found))
