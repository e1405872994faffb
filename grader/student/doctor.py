"""Report what this machine can grade and what prevents the rest; runs a known-good kernel on each tier."""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.text import Text

from grader import __version__
from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, graded_items
from grader.course.spec import Case, Codegen, Exercise, Lab, Tolerance, Verdict
from grader.judge.run import Run
from grader.results import points
from grader.results.machine import machine
from grader.results.outcome import Outcome
from grader.setup.environment import unsupported
from grader.setup.steps import numbers, requirements
from grader.student import gpu_check
from grader.student.gpu_check import Row
from grader.system import gpu

KNOWN_GOOD = """
import triton
import triton.language as tl

@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n)
        tl.store(out_ptr + offs, 2.0 * x, mask=offs < n)

def double(x, *, out):
    double_kernel[(1,)](x, out, x.numel(), BLOCK=256)
    return out
"""
CASE = Case({"n": 1009}, bitwise=True)
TRIAL = Exercise(
    name="double", file="double.py", points=0.0, cases=(CASE,), codegen=Codegen(CASE),
    inputs=lambda rng, case: {"x": rng.normal(case.params["n"])},
    reference=lambda x: (2.0 * x,), torch_op=lambda x: (2.0 * x,),
    tolerance=Tolerance(lambda _case, _inputs, reference: tuple(y.abs() for y in reference)),
)  # fmt: skip
ADVICE = {  # a pattern in the text of a row, and what to do about it
    "ptxas|cuobjdump": "Triton's own compiler tools are missing or do not run: install triton again",
    "No module named": "a package is missing: run `make setup`, after `make clean` if that does not help",
    "cuIpc": "no CUDA IPC, as in WSL2 and some containers: use TIER=cpu; the rest needs native Linux",
    r"Python\.h|C compiler|gcc": "Triton needs a C compiler and Python.h: apt install gcc python3-dev",
    "(?i)out.of.memory": "another program uses the memory: stop it, or wait until it ends",
    "no kernel image": "this build of torch has no code for this GPU: install a release that supports it",
    "mismatch": "the driver was updated while it was in use: restart the machine",
    "no NVIDIA driver": "if there is a GPU, install its driver; in a container, start it with --gpus all",
}
MOST_WORDS = 600  # characters of a row
HERE = "here"  # can be graded on this machine
STYLES = {"ok": "green", "BROKEN": "red", "note": "yellow"}


def examine(console: Console) -> bool:
    """Print what was found; return False if a tier that `make grade` uses on this machine is broken."""

    def show(title: str, rows: Iterable[Row]) -> set[str]:
        """Print each row as soon as it is known, with advice if there is any; return names of broken rows."""
        broken = set()
        console.print(Text(f"\n{title}", style="bold"))
        for name, state, words in rows:
            advice = [then for pattern, then in ADVICE.items() if state != "ok" and re.search(pattern, words)]
            lines = [f"  {name:<10}{state:<8}{words.splitlines()[0][:MOST_WORDS]}", *advice]
            console.print(Text(f"\n{'':<20}".join(lines), style=STYLES.get(state, "")))
            broken |= {name} if state == "BROKEN" else set()
        return broken

    found, missing = gpu.find()
    tier = "gpu" if found else "cpu"
    show(f"grader {__version__}, {platform.system()} {platform.machine()}", _packages())
    usable = not show("GPU", gpu_check.look_at(found) if found else [gpu_check.why_none(missing)])
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        broken = show("tiers, each tested with a known-good kernel", _tiers(Path(folder), found, usable))
        once = ", once everything marked BROKEN is fixed" if broken else ""
        usable = "gpu" not in broken
        show(f"points that can be graded here{once}", gradable(Path(folder), tier, found if usable else None))
    return not broken


def _packages() -> Iterator[Row]:
    here = machine(None, "").model_dump()
    reason = unsupported(sys.platform, sys.version_info)
    yield "python", "note" if reason else "ok", reason or here["python"]
    for requirement in requirements(catalog.ROOT, ()):
        name, _, floor = requirement.partition(">=")
        if name in here:
            fits = numbers(here[name]) >= numbers(floor)
            yield name, "ok" if fits else "note", f"{here[name]}, {floor} or newer is supported"
    if not os.access("results" if os.path.exists("results") else ".", os.W_OK):
        yield "results/", "note", "not writable: choose another with `python -m grader grade --results DIR`"


def _tiers(folder: Path, found: gpu.Gpu | None, usable: bool) -> Iterator[Row]:
    entry = catalog.Entry(folder / "lab0_trial", 0, Lab("trial", (TRIAL,)))
    entry.folder.mkdir()
    (entry.folder / TRIAL.file).write_text(KNOWN_GOOD)
    asked = {item.kind: item for item in graded_items(entry)}
    with closing(Run(folder, "cpu", seed=1, gpu=None, screened=False)) as run:
        run.warm(list(asked.values()))
        yield _row("codegen", run.answer(asked[CODEGEN]), f"compiles for sm_{run.arch}, which needs no GPU")
        outcome = run.answer(asked[CORRECTNESS])
        yield _row("cpu", outcome, "runs in Triton's interpreter", state="note" if found else "BROKEN")
        level = run.session.assurance
        if level:
            kinds = f"; refused in a trial: {', '.join(level.refused)}"
            yield "isolation", "ok" if level.level > 1 else "note", f"level {level.words}{kinds}"
    if found and usable:
        with closing(Run(folder, "gpu", seed=1, gpu=found, screened=False)) as run:
            yield _row("gpu", run.answer(asked[CORRECTNESS]), "runs on the GPU, on memory shared by CUDA IPC")
    else:
        yield "gpu", "BROKEN" if found else "", "see above" if found else "needs a GPU"


def _row(tier: str, outcome: Outcome, words: str, state: str = "BROKEN") -> Row:
    """Return the row of a tier; `state` is used if it fails: "note" if another tier takes its place."""
    if outcome.verdict is Verdict.PASS:
        return tier, "ok", words
    return tier, state, f"{outcome.verdict.value}: {outcome.where}"


def gradable(folder: Path, tier: str, found: gpu.Gpu | None) -> Iterator[Row]:
    """Yield the points of each lab that this tier can grade, and why not the rest; `folder` is empty."""
    with closing(Run(folder, tier, seed=1, gpu=found, screened=False)) as run:
        for entry in catalog.find():
            by_reason: Counter[str] = Counter()
            for item in graded_items(entry):
                file = item.entry.submission(folder, item.exercise)
                file.parent.mkdir(exist_ok=True)
                file.write_text("# in place of a finished file\n")
                outcome = run.ungradable(item)
                reason = outcome.where if outcome else gpu_check.too_large(item) if found else ""
                by_reason[f"{item.kind} ({reason})" if reason else HERE] += item.points
            here, *rest = points.column([by_reason.pop(HERE, 0.0), *by_reason.values()])
            missing = [f"{most} {why}" for why, most in zip(by_reason, rest, strict=True) if most]
            words = f"{here} of {points.text(entry.lab.points)} points"
            words += f"; not here: {', '.join(missing)}" if missing else ""
            yield f"lab {entry.number}", "", words
