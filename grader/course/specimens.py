"""Files that must get a known verdict; imports no torch. The first line of each says which verdict.

    EXPECT WRONG/UNWRITTEN from softmax_forward, hint 2: S12 one block, and no loop over the row
    EXPECT POLICY; unscreened WRONG/UNWRITTEN or CRASHED from elementwise_add: A1 frames are forged
    EXPECT SLOW from elementwise_add/speed, hint 5 on a GPU: S57 neighbours lie far apart
    EXPECT PASS from softmax_forward and softmax_backward: one row in two passes

The verdict is that of the first item of the named function that does not pass; where several functions are
named, it holds for each. `unscreened` is the verdict with the static screen switched off. A folder in the
place of a file is laid out beside the submission as it is; its one `.py` file with such a line is the
submission. A `.cu` file has the line in a comment.
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
    """One file or folder with the verdict it must get."""

    path: Path
    file: Path
    screened: tuple[str, ...]
    unscreened: tuple[str, ...]  # as screened, where line one says nothing else
    functions: tuple[str, ...]
    kind: str
    hint: int | None
    where: str  # CPU or GPU where only one of them shows it, else empty
    row: str
    says: str

    @property
    def name(self) -> str:
        """Unique, and readable in a list of tests."""
        return "/".join(self.path.with_suffix("").parts[-3:])


def first_line(file: Path) -> str:
    """Of the docstring, or the comment that CUDA C++ has in its place."""
    if file.suffix == ".cu":
        return file.read_text("utf-8").partition("\n")[0].removeprefix("// ")
    return (ast.get_docstring(ast.parse(file.read_bytes())) or "").partition("\n")[0]


def read(path: Path) -> Specimen:
    """The specimen at `path`; ValueError where line one is not as it must be."""
    files = [path] if path.is_file() else sorted(path.glob("*.py"))
    for file in files:
        line = first_line(file)
        found = LINE.fullmatch(line)
        if found:
            break
    else:
        raise ValueError(f"{path}: line one does not say which verdict to expect")
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
    """All specimens below the repository that match; ValueError where there are none."""
    paths = sorted(path for pattern in patterns for path in catalog.ROOT.glob(pattern))
    kept = [path for path in paths if path.name[0] not in "._"]
    if not kept:
        raise ValueError(f"nothing matches {', '.join(patterns)}: a corpus that is empty shows nothing")
    return [read(path) for path in kept]
