"""What must not leave with a release: the code of every task, and every wrong or other answer.

Texts are compared by their letters and digits alone. Indentation, quotes, comment signs and a patch's `+`
then hide nothing; another spelling of the same code does, and is not looked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from grader.skeleton import render, render_native

RUN, STRIDE = 64, 8  # so many letters and digits are an answer's; a text is looked at in every eighth place
SHORTEST = 32  # a shorter region is an idiom that any text may hold
CODE = (".py", ".cu", ".cuh")
_TASKS = re.compile(
    r"^ *(?:#|//) (BEGIN TODO|BONUS) (\d+):.*\n((?:.*\n)*?) *(?:#|//) END (?:TODO|BONUS) \2$", re.MULTILINE
)
# A task's README gives the interface, so an interface is no answer.
_INTERFACE = re.compile(r"\bdef \w+\([^()]*(?:\([^()]*\)[^()]*)*\)[^:\n]*:|extern \"C\"[^{;]*")


def plain(text: str) -> str:
    """The letters and digits of ASCII in a text."""
    return re.sub(r"[^A-Za-z0-9]+", "", text)


def task_regions(text: str) -> list[str]:
    """The code of every task and bonus of a solution, with the comments in it."""
    return [match[3] for match in _TASKS.finditer(text)]


def windows(text: str, step: int = 1) -> list[str]:
    """All runs of RUN characters of a plain text that begin at every `step`-th place."""
    return [text[at : at + RUN] for at in range(0, len(text) - RUN + 1, step)]


@dataclass(frozen=True, eq=False)
class Answers:
    """Runs of the answers, and short answers whole, each with the file that it is from."""

    runs: dict[str, str]
    shorts: dict[str, str]

    def found_in(self, text: str) -> str | None:
        """The file whose answer stands in a text; None where there is none."""
        letters = plain(text)
        for run in windows(letters, STRIDE):
            if run in self.runs:
                return self.runs[run]
        return next((file for short, file in self.shorts.items() if short in letters), None)


def collect(root: Path) -> Answers:
    """The answers of a checkout; FileNotFoundError where it has none."""
    runs, shorts, public = {}, {}, set()
    for path in sorted((root / "solutions").rglob("*")):
        if path.suffix not in CODE:
            continue
        text = path.read_text("utf-8", errors="replace")
        skeleton = _skeleton(path, text)
        regions = [text] if skeleton is None else task_regions(text)
        public.update(windows(plain(skeleton or "")))
        for region in regions:
            letters = plain(_INTERFACE.sub(" ", region))
            if SHORTEST <= len(letters) < RUN + STRIDE:
                shorts[letters] = str(path.relative_to(root))
            runs.update(dict.fromkeys(windows(letters), str(path.relative_to(root))))
    # Six digits beside letters are a size in a name; mostly digits are a table, of which there are many.
    told = {run for run in runs if sum(map(str.isdigit, run)) > RUN // 2}
    runs = {run: file for run, file in runs.items() if run not in public and run not in told}
    if not runs:
        raise FileNotFoundError(f"no answer below {root}, so none to look for")
    return Answers(runs, shorts)


def _skeleton(path: Path, text: str) -> str | None:
    """What students get of a solution; None of a file of which they get nothing."""
    if {"wrong", "variants", "kernel-log"} & set(path.parts):
        return None
    try:
        return (render if path.suffix == ".py" else render_native)(text)
    except (ValueError, SyntaxError):
        return None
