"""The picture of a graded run in the README: a terminal with the report of a half-finished lab.

Lab 1 is solved. The forward pass of lab 2 is written, with one mistake: the sum keeps the scale of the old
maximum. The other TODOs of lab 2 are open.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from grader.course import catalog
from grader.grading.options import DECLARED, RunOptions
from grader.report.terminal import show
from grader.results import reading
from grader.results.models import Results

RECORD = Path("solutions", "results", "cpu-half-done.json")
PICTURE = Path("labs", "images", "graded-run.svg")
ARGUMENTS = RunOptions(labs="1,2", tier="cpu", seed=8).arguments()
COLUMNS = 118  # of the terminal
LIMIT_S = 600.0

DONE = (1, 2, 4)  # TODOs of lab 2
RESCALED = "d = d * tl.exp(m - shift) + tl.sum"
NOT_RESCALED = "d = d + tl.sum"
_REGION = re.compile(r"^( *)# BEGIN TODO (\d+): .*?^\1# END TODO \2$", re.MULTILINE | re.DOTALL)

THEME = TerminalTheme(
    (22, 26, 31), (215, 220, 226),
    [(88, 96, 105), (255, 123, 114), (86, 211, 100), (227, 179, 65), (121, 192, 255), (210, 168, 255),
     (86, 212, 221), (215, 220, 226)],
)  # fmt: skip
# Rich's drawing of a terminal, but with fonts of the reader's machine, so the picture downloads none.
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>make grade, in a terminal</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def half_done(root: Path = catalog.ROOT) -> dict[str, str]:
    """Return the student's files in the picture, by path below labs/.

    ValueError if the solution no longer has the line in which the mistake is made.
    """
    (add,) = root.glob("solutions/lab1_*/*.py")
    (softmax,) = root.glob("solutions/lab2_*/*.py")
    solution = softmax.read_text("utf-8")
    if RESCALED not in solution:
        raise ValueError(f"{softmax.name} no longer has the line {RESCALED!r}")
    solved = {match[2]: match[0] for match in _REGION.finditer(solution.replace(RESCALED, NOT_RESCALED))}
    skeleton = (root / "labs" / softmax.relative_to(root / "solutions")).read_text("utf-8")
    written = _REGION.sub(lambda match: solved[match[2]] if int(match[2]) in DONE else match[0], skeleton)
    return {
        add.relative_to(root / "solutions").as_posix(): add.read_text("utf-8"),
        softmax.relative_to(root / "solutions").as_posix(): written,
    }


def grade_again(root: Path = catalog.ROOT) -> Results:
    """Grade the half-finished labs in a copy of the course, and store the record; RuntimeError on failure."""
    with tempfile.TemporaryDirectory(prefix="grader-half-done-") as folder:
        course = Path(folder, "course")
        for name in ("grader", "labs", "gpu-programming"):
            shutil.copytree(root / name, course / name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        for path, text in half_done(root).items():
            (course / "labs" / path).write_text(text, "utf-8")
        command = [sys.executable, "-m", "grader", *ARGUMENTS]
        done = subprocess.run(command, cwd=course, capture_output=True, check=False, timeout=LIMIT_S)
        if done.returncode:
            raise RuntimeError(f"grade ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
        record = (course / "results" / "results.json").read_text("utf-8")
    (root / RECORD).write_text(record, "utf-8")
    return reading.parse(record)


def draw(results: Results) -> str:
    """Return the terminal after this run as SVG; long lines are wrapped."""
    shown = io.StringIO()
    show(results, Console(file=shown, width=1000, color_system="standard", force_terminal=True))
    terminal = Console(
        file=io.StringIO(), width=COLUMNS, record=True, force_terminal=True, legacy_windows=False
    )
    terminal.print(Text(f"$ {typed(results)}", style="bold"))
    for line in shown.getvalue().rstrip("\n").split("\n"):
        terminal.print(Text.from_ansi(line.rstrip()), overflow="fold")
    return terminal.export_svg(title="make grade", theme=THEME, code_format=SVG, unique_id="run")


def typed(results: Results) -> str:
    """Return the command of a run as a user types it: `make grade LAB=1`."""
    command = results.command.replace("python -m grader grade", "make grade")
    for one in DECLARED.values():
        command = command.replace(f" {one.flag} ", f" {one.make}=") if one.make else command
    return command


def write(root: Path = catalog.ROOT) -> Path:
    """Draw the picture from the record, and return its path."""
    (root / PICTURE).write_text(draw(reading.read(root / RECORD)), "utf-8")
    return root / PICTURE
