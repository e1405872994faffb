"""Check that built notebooks match their sources, and that all run within the time limit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import nbformat

from grader.grading.progress import Follower
from grader.site.notebooks.build import BuildError, Source, executed, unbuilt, write
from grader.site.notebooks.rules import problems
from grader.system.python_calls import call_apart

AT_ONCE = 2
LIMIT_S = 300.0  # for all of them, on two cores


def differences(source: Source) -> Iterator[str]:
    """Yield the differences between a source and its stored notebook."""
    name = source.built.name
    if not source.built.is_file():
        yield f"{name} was never built: run make notebooks K={source.name}"
        return
    kept, right = nbformat.read(source.built, as_version=4).cells, unbuilt(source).cells
    pairs = zip(kept, right, strict=False)
    changed = [two.id for one, two in pairs if (one.cell_type, one.source) != (two.cell_type, two.source)]
    if changed or len(kept) != len(right):
        at = changed[0] if changed else f"cell-{min(len(kept), len(right)) + 1:02}"
        yield f"{name}, {at}: differs from {source.path.name}: run make notebooks K={source.name}"
    for cell in kept:
        if cell.cell_type == "code" and cell.execution_count is None:
            yield f"{name}, {cell.id}: was never run: run make notebooks K={source.name}"


def build_all(chosen: Sequence[Source], follower: Follower) -> list[str]:
    """Run and write each notebook; return the failures."""
    return _each(_built, chosen, follower)


def check_all(chosen: Sequence[Source], follower: Follower) -> list[str]:
    """Check each against the rules and its source, and run it without writing; return the problems."""
    began = time.monotonic()
    found = [words for source in chosen for words in (*problems(source), *differences(source))]
    found += _each(_runs, chosen, follower)
    took = time.monotonic() - began
    follower.note(f"{len(chosen)} notebooks in {took:.0f} s, {AT_ONCE} at a time")
    if took > LIMIT_S:
        found.append(f"all notebooks took {took:.0f} s; the limit is {LIMIT_S:.0f} s")
    return found


def _built(source: Source) -> str:
    return "written" if write(source) else "as before"


def _runs(source: Source) -> str:
    executed(source)
    return "runs"


def _timed(work, source: Source) -> str:
    began = time.monotonic()
    return f"{work(source)}, {time.monotonic() - began:.0f} s"


def _each(work, chosen: Sequence[Source], follower: Follower) -> list[str]:
    """Call `work` for each source in its own process, a few at once; return the failures."""
    troubles = []
    follower.begin(len(chosen))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = {pool.submit(call_apart, _timed, work, source): source for source in chosen}
        follower.running("notebooks", ", ".join(source.name[:2] for source in chosen))
        for one in as_completed(asked):
            try:
                follower.note(f"{asked[one].built.name}: {one.result()}")
            except BuildError as error:
                troubles.append(str(error))
            follower.done()
    return troubles
