"""Specimens: files whose first line says which verdict they must get; imports no torch.

    EXPECT WRONG/UNWRITTEN from softmax_forward, hint 2: S12 one block, and no loop over the row
    EXPECT POLICY; unscreened WRONG/UNWRITTEN or CRASHED from elementwise_add: A1 frames are forged
    EXPECT SLOW from elementwise_add/speed, hint 5 on a GPU: S57 neighbours lie far apart
    EXPECT PASS from softmax_forward and softmax_backward: one row in two passes

The verdict is that of the first item of the named function that does not pass; if several functions are
named, it applies to each. `unscreened` is the verdict with the static screen switched off. If a specimen is a
folder, its one `.py` file with such a line is the submission, and the folder's other files are copied beside
it. A `.cu` file has the line in a comment.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, SPEED

VERDICT = r"[A-Z_]+(?:/[A-Z_]+)?"
VERDICTS = f"{VERDICT}(?: or {VERDICT})*"
LINE = re.compile(
    rf"EXPECT (?P<screened>{VERDICTS})(?:; unscreened (?P<unscreened>{VERDICTS}))? "
    r"from (?P<functions>\w+(?: and \w+)*)(?:/(?P<kind>speed|code))?(?:, hint (?P<hint>\d+))?"
    r"(?: on a (?P<where>CPU|GPU))?: (?:(?P<row>[A-DFS]\d+) )?(?P<says>\S.*)"
)
KINDS = {None: CORRECTNESS, "speed": SPEED, "code": CODEGEN}


@dataclasses.dataclass(frozen=True)
class Specimen:
    """One file or folder, with the verdict it must get."""

    path: Path
    file: Path
    screened: tuple[str, ...]
    unscreened: tuple[str, ...]  # the same as `screened` unless the first line says otherwise
    functions: tuple[str, ...]
    kind: str
    hint: int | None
    where: str  # CPU or GPU if the verdict appears only there, else empty
    row: str
    says: str

    @property
    def name(self) -> str:
        """A unique name that is readable in a list of tests."""
        return "/".join(self.path.with_suffix("").parts[-3:])


def first_line(file: Path) -> str:
    """Return the first line of the docstring, or in CUDA C++ of the comment."""
    if file.suffix == ".cu":
        return file.read_text("utf-8").partition("\n")[0].removeprefix("// ")
    return (ast.get_docstring(ast.parse(file.read_bytes())) or "").partition("\n")[0]


def read(path: Path) -> Specimen:
    """Read the specimen at `path`; ValueError if its first line does not have the form above."""
    files = [path] if path.is_file() else sorted(path.glob("*.py"))
    for file in files:
        line = first_line(file)
        found = LINE.fullmatch(line)
        if found:
            break
    else:
        raise ValueError(f"{path}: the first line does not say which verdict to expect")
    screened = tuple(found["screened"].split(" or "))
    return Specimen(
        path,
        file,
        screened,
        tuple(found["unscreened"].split(" or ")) if found["unscreened"] else screened,
        tuple(found["functions"].split(" and ")),
        KINDS[found["kind"]],
        int(found["hint"]) if found["hint"] else None,
        found["where"] or "",
        found["row"] or "",
        found["says"],
    )


def find(*patterns: str) -> list[Specimen]:
    """Return all specimens in the repository that match a glob pattern; ValueError if there are none."""
    paths = sorted(path for pattern in patterns for path in catalog.ROOT.glob(pattern))
    kept = [path for path in paths if path.name[0] not in "._"]
    if not kept:
        raise ValueError(f"no specimen matches {', '.join(patterns)}")
    return [read(path) for path in kept]
