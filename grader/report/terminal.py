"""The terminal report that a student reads; text only, no arithmetic on points."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from grader.course.catalog import CAPSTONE
from grader.course.items import CODEGEN, CORRECTNESS, DOCUMENT, SPEED, Item
from grader.course.spec import Reason, Verdict, lab_word
from grader.results import points
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results
from grader.results.outcome import Outcome, result_of
from grader.results.points import Score, Shown
from grader.system.text import harmless

WIDTH = 100
KINDS = {CORRECTNESS: "correctness", CODEGEN: "generated code", SPEED: "speed", DOCUMENT: "document"}
FAULT_ADVICE = (
    "This is a problem in the grader or the machine, not in your file. No points were taken off.",
    "Run it again; if it happens again, send results/results.json to the course staff.",
)
UNDECIDED = "timed twice, too noisy to decide; the course staff decides"
STYLES = {
    "PASS": "green",
    "NOT_GRADED": "dim",
    "NOT_STARTED": "cyan",
    "SLOW": "yellow",
    "INCONCLUSIVE": "yellow",
}
LABS = "labs"  # the tree that is graded by default
ERRORS = (Verdict.CRASHED, Verdict.COMPILE_ERROR, Verdict.POLICY, Verdict.OUT_OF_MEMORY)
_NUMBER = re.compile(r"\d[\d,.]*")
SHOWN_FRAMES = 3
SHOWN_NAMES = 6  # names of cases that failed like the first
SHOWN_LINES = 12  # lines of an error's text
SHOWN_PRINTED = 12  # lines that a failing file printed


def explain(asked: Item, outcome: Outcome) -> list[str]:
    """Return the lines of the message for one item, as a test explorer shows it."""
    item = result_of(asked, outcome)
    details = details_of(item, asked.entry.folder.name, asked.exercise.file)
    return [f"{word(item)}  {item.name}", *details]


def word(item: ItemResult) -> str:
    """Return the verdict as it is printed: `NOT STARTED`, `WRONG/MISMATCH`, `waits` for another item."""
    return "waits" if item.blocked else item.label.replace("_", " ")


def details_of(item: ItemResult, folder: str, file: str, source: str = LABS) -> Iterator[str]:
    """Yield the lines below an item's verdict: where, which pattern, why, and what to read.

    `source` is the graded tree, as given to `--from`. No line is a command in the log of a CI service.
    """
    yield from map(harmless, _details(item, folder, file, source))


def _details(item: ItemResult, folder: str, file: str, source: str) -> Iterator[str]:
    path = path_of(folder, file, source)
    for todo in item.open_todos:
        yield f"    {path}:{todo.line}  TODO {todo.number}: {todo.text}"
    label = label_of(item)
    if item.where:
        first, *rest = item.where.splitlines()
        yield f"    {label:<13} {first}"
        # Triton quotes the kernel first; the reason is at the end.
        yield from (f"    {'':<13} {line}" for line in rest[-SHOWN_LINES:])
    if item.pattern:
        yield f"    {'pattern':<13} {item.pattern}"
    for frame in item.frames[:SHOWN_FRAMES]:
        yield f"    {'at':<13} {frame.file(path)}:{frame.line}  {frame.code}"
    if item.cause:
        yield f"    {'likely cause':<13} {item.cause}"
    if item.hint:
        yield f"    {'read':<13} {readme_of(folder)}, hint {item.hint}"
    if item.printed.strip():
        lines = item.printed.strip().splitlines()
        yield f"    {'printed':<13} {lines[0]}"
        yield from (f"    {'':<13} {line}" for line in lines[1:SHOWN_PRINTED])
    if item.verdict is Verdict.GRADER_FAULT:
        yield from (f"    {line}" for line in FAULT_ADVICE)


def label_of(item: ItemResult) -> str:
    """Return the label that is printed before an item's `where`."""
    if item.verdict is not Verdict.WRONG or item.reason is Reason.RETURNED:
        return "what"
    return "first wrong" if item.kind == CORRECTNESS else "found"


def alike(items: Sequence[ItemResult], folder: str, file: str) -> list[list[ItemResult]]:
    """Group items with the same verdict and the same cause, or the same message if no cause is known.

    An error is the same at the same line with other numbers, which are the sizes of its case.
    """
    groups: dict[tuple[str, ...], list[ItemResult]] = {}
    for item in items:
        if item.verdict in ERRORS and item.frames and not item.open_todos:
            words = _NUMBER.sub("0", item.cause or item.where)
            same: tuple[str, ...] = (str(item.frames[0].line), item.frames[0].function, words)
        else:
            same = (item.cause,) if item.cause else tuple(details_of(item, folder, file))
        groups.setdefault((item.verdict, *same), []).append(item)
    return list(groups.values())


def readme_of(folder: str) -> str:
    """Return the path of the README with a lab's hints."""
    return path_of(folder, "README.md")


def path_of(folder: str, file: str, source: str = LABS) -> str:
    """Return a lab file's path from the top of the checkout; in a tree elsewhere, the one below labs/."""
    tree = Path(source)
    tree = Path(LABS) if tree.is_absolute() or ".." in tree.parts else tree
    if folder.startswith("lab"):
        return (tree / folder / file).as_posix()
    above = CAPSTONE if tree == Path(LABS) else tree / CAPSTONE
    return (above / ("" if folder == CAPSTONE.name else folder) / file).as_posix()


def kinds_of(exercise: ExerciseResult, score: Score) -> list[tuple[str, list[ItemResult], Score]]:
    """Return the items of an exercise by kind, each kind with its part of the exercise's `score`."""
    groups = [(kind, [item for item in exercise.items if item.kind == kind]) for kind in KINDS]
    groups = [(kind, items) for kind, items in groups if items]
    scores = points.split(score, [items for _, items in groups])
    return [(kind, items, own) for (kind, items), own in zip(groups, scores, strict=True)]


def _lab_lines(lab: LabResult, score: Score, source: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a lab's report with their styles; paths are in the tree `source`."""
    scores = points.split(score, [exercise.items for exercise in lab.exercises])
    for exercise, of_exercise in zip(lab.exercises, scores, strict=True):
        yield "", ""
        yield f"{lab_word(lab.folder, lab.number)}  {exercise.name}", "bold"
        for kind, items, own in kinds_of(exercise, of_exercise):
            yield from _group(lab, exercise, KINDS[kind], items, own, source)
    yield "", ""
    total = f"{score.earned} / {score.graded}"
    yield f"{f'{lab_word(lab.folder, lab.number)}  {lab.title}, total':<{WIDTH - 16}}{total:>14}", "bold"


def _brief(lab: LabResult, score: Score) -> Iterator[tuple[str, str]]:
    """Yield one line for a lab of which nothing is written: its TODOs are listed when it is graded alone."""
    name = f"{lab_word(lab.folder, lab.number)}  {lab.title}"
    todos = {
        (exercise.file, todo.line)
        for exercise in lab.exercises
        for item in exercise.items
        for todo in item.open_todos
    }
    state = f"not started, {len(todos)} TODOs" if todos else "not started"
    line = f"{f'{name}, {state}':<{WIDTH - 16}}{f'{score.earned} / {score.graded}':>14}"
    yield line, STYLES[Verdict.NOT_STARTED.value]


def _group(
    lab: LabResult,
    exercise: ExerciseResult,
    title: str,
    items: Sequence[ItemResult],
    score: Score,
    source: str,
) -> Iterator[tuple[str, str]]:
    graded = [item for item in items if item.verdict not in (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)]
    passed = [item for item in graded if item.verdict is Verdict.PASS]
    states = {item.verdict for item in graded}
    style = ""
    waits_for = [item.blocked for item in graded if item.blocked]
    if states == {Verdict.NOT_STARTED}:
        word, count = "not started", ""
    elif graded and len(waits_for) == len(graded):
        word, count, style = "waits", f" {waits_for[0].until}", "dim"
    elif title == "speed":
        word, count, style = "", "", "green" if len(passed) == len(graded) else "yellow"
    else:
        word = "ok" if len(passed) == len(graded) else "FAIL"
        style = "green" if word == "ok" else "red"
        count = f"{len(passed)} of {len(graded)}"
    if graded:
        shown = f"{score.earned} / {score.graded}" if score.graded else ""
        yield f"{f'  {title:<16}{word:<5}{count}':<{WIDTH - 16}}{shown:>14}", style
    without_points = [item for item in passed if item.kind == CORRECTNESS and item.where]
    if without_points:
        yield f"    {', '.join(item.name for item in without_points)}: {without_points[0].where}", "dim"
    if title == "speed" and any(item.timing for item in graded):
        yield from _speed_table(graded)
        for line in next((item.printed.strip().splitlines() for item in graded if item.printed), []):
            yield f"    {line}", "dim"
    if title == "generated code":
        yield from _codegen_lines(graded)
    failed = [item for item in graded if item.verdict is not Verdict.PASS]
    yield from _failures(lab, exercise, failed, title, source)
    faults = [item for item in items if item.verdict is Verdict.GRADER_FAULT]
    yield from _failures(lab, exercise, faults, title, source)
    for why, same, still_open in not_graded(items, score):
        if same[0].needs_gpu:
            continue  # said once, in the last lines
        shown = f"{still_open} points" if still_open else "no points"
        yield f"  NOT GRADED  {title}, {len(same)} of {len(items)}, {shown}: {why}", "dim"


def not_graded(items: Sequence[ItemResult], score: Score) -> Iterator[tuple[str, list[ItemResult], Shown]]:
    """Yield each reason why items of one kind were not graded, with these items and their part of `score`."""
    whys = [_why_not_graded(item) for item in items]
    by_reason = {
        why: [item for item, own in zip(items, whys, strict=True) if own == why]
        for why in dict.fromkeys(whys)
        if why is not None
    }
    others = [item for item, why in zip(items, whys, strict=True) if why is None]
    scores = points.split(score, [*by_reason.values(), others])
    for (why, same), own in zip(by_reason.items(), scores, strict=False):
        yield why, same, own.not_graded


def _why_not_graded(item: ItemResult) -> str | None:
    """Return why an item has no points yet; None if it has, or if a fault is listed for it."""
    if item.undecided:
        return UNDECIDED
    return item.where if item.verdict is Verdict.NOT_GRADED else None


def _failures(
    lab: LabResult, exercise: ExerciseResult, items: Sequence[ItemResult], title: str, source: str
) -> Iterator[tuple[str, str]]:
    """Yield the failures; of those with the same verdict and cause the first in full, the others by name."""
    if not items or _listed_above(lab, exercise, items):
        return
    for first, *others in alike(items, lab.folder, exercise.file):
        if first.verdict is Verdict.NOT_STARTED and title != "correctness":
            continue  # already listed under correctness
        if first.blocked:
            continue  # its line says what it waits for
        above = _told_above(lab, exercise, first)
        if above:
            yield f"  {word(first)}  {first.name}", STYLES.get(first.verdict.value, "red")
            same = f"the same error as in {above}, line {first.frames[0].line}"
            yield f"    {'what':<13} {same}", ""
            continue
        heading = word(first) if first.verdict is Verdict.NOT_STARTED else f"{word(first)}  {first.name}"
        yield f"  {heading}", STYLES.get(first.verdict.value, "red")
        details = (
            _slow(first, lab.folder)
            if first.verdict is Verdict.SLOW
            else details_of(first, lab.folder, exercise.file, source)
        )
        for line in details:
            yield line, ""
        if others and first.verdict is not Verdict.NOT_STARTED:
            names = ";  ".join(item.name for item in others[:SHOWN_NAMES])
            more = f";  and {len(others) - SHOWN_NAMES} more" if len(others) > SHOWN_NAMES else ""
            yield f"    {'the same':<13} {names}{more}", ""


def _listed_above(lab: LabResult, exercise: ExerciseResult, items: Sequence[ItemResult]) -> bool:
    """Whether an earlier exercise of the same file has listed the same open TODOs."""
    todos = items[0].open_todos
    above = lab.exercises[: lab.exercises.index(exercise)]
    return bool(todos) and any(e.file == exercise.file and e.items[0].open_todos == todos for e in above)


def _told_above(lab: LabResult, exercise: ExerciseResult, item: ItemResult) -> str:
    """The name of an earlier exercise of the file with the same error at the same line; "" without one."""
    above = lab.exercises[: lab.exercises.index(exercise)]
    if item.verdict not in ERRORS or not item.frames:
        return ""
    for earlier in above:
        if earlier.file == exercise.file:
            told = [one for one in earlier.items if one.verdict is item.verdict and one.frames]
            if told and len(alike([told[0], item], lab.folder, exercise.file)) == 1:
                return earlier.name
    return ""


def _slow(item: ItemResult, folder: str) -> Iterator[str]:
    yield f"    {'likely cause':<13} {item.cause}"
    yield f"    {'read':<13} {readme_of(folder)}, hint {item.hint}"


def _speed_table(items: Sequence[ItemResult]) -> Iterator[tuple[str, str]]:
    timed = [(item, item.timing) for item in items if item.timing]
    slowest = min(timed, key=lambda one: one[1].percent_of_baseline)[0]
    baseline = timed[0][1].baseline
    yield f"    {'shape':<30} {'yours':>12} {baseline[:14]:>14} {'percent':>9} {'interval':>15}  rate", "dim"
    for item, timing in timed:
        low, high = timing.interval_percent
        percent = f"{timing.percent_of_baseline:>8.1f}%"
        peers = "".join(f", {name} {us:.0f} us" for name, us in timing.peers_us.items())
        mark = "  <- slowest" if item is slowest and len(timed) > 1 else ""
        times = f"{timing.student_us:>9.1f} us {timing.reference_us:>11.1f} us"
        band = f"{low:.1f}-{high:.1f}"
        rate = f"{timing.rate}{peers}{mark}"
        yield f"    {item.name:<30} {times} {percent} {band:>15}  {rate}", ""
        for kernel, config in timing.configs.items():
            yield f"      {kernel} ran with {config}", "dim"


def _codegen_lines(items: Sequence[ItemResult]) -> Iterator[tuple[str, str]]:
    for item in items:
        if item.verdict is Verdict.PASS and item.where:
            yield f"    {item.name:<16}{item.where}", ""
    kernels = next((item.kernels for item in items if item.kernels), ())
    for kernel in kernels:
        widths = kernel.load_widths_bytes
        widest = f"loads {widths[0]} bytes wide" if widths else "no plain global loads"
        tensor = kernel.tensor_core or "no tensor cores"
        shared = f"{kernel.shared_bytes // 1024} of {kernel.shared_limit_bytes // 1024} KB shared"
        registers = f"{kernel.registers} registers"
        spills = f"{kernel.spill_bytes} bytes spilled" if kernel.spill_bytes else "no spills"
        copies = f"{kernel.async_copies} async copies"
        config = f": {kernel.config}" if kernel.config else ""
        yield f"    {kernel.name}{config}", "dim"
        yield (
            f"      {tensor}, {widest}, {copies}, {registers}, {spills}, {shared}",
            "dim",
        )


def _for_what(results: Results, score: Score) -> str:
    """Say for what a GPU is needed, with the points of each; empty if nothing needs one."""
    groups: dict[str, list[ItemResult]] = {}
    rest = []
    for item in results.items:
        if item.verdict is Verdict.NOT_GRADED and item.needs_gpu:
            why = item.where.removeprefix("needs a GPU").removeprefix(": ")
            groups.setdefault("speed" if item.kind == SPEED else why or item.kind, []).append(item)
        else:
            rest.append(item)
    scores = points.split(score, [*groups.values(), rest])
    said = [f"{why} ({own.not_graded})" for why, own in zip(groups, scores, strict=False) if own.not_graded]
    return f": {', '.join(said)}" if said else ""


def show(results: Results, console: Console) -> None:
    """Print the whole report on a console, without colours if it is piped."""
    score = points.score_of(results.items)
    labs = points.split(score, [lab.items for lab in results.labs])
    for lab, own in zip(results.labs, labs, strict=True):
        brief = len(results.labs) > 1 and not lab.is_begun
        lines = _brief(lab, own) if brief else _lab_lines(lab, own, results.source)
        for line, style in lines:
            console.print(Text(harmless(line), style=style), soft_wrap=True)
    console.print()
    total = f"{score.earned} / {score.graded}"
    console.print(Text(f"{'total':<{WIDTH - 16}}{total:>14}", style="bold"), soft_wrap=True)
    if score.not_graded:
        where = "a GPU" if results.tier != "gpu" else "another run"
        if any(item.undecided for item in results.items):
            where = "another run, or a decision of the course staff"
        console.print(
            Text(
                f"{score.not_graded} of {score.most} points need {where}{_for_what(results, score)}",
                style="dim",
            ),
            soft_wrap=True,
        )
    machine = results.machine
    console.print(
        f"{machine.gpu_name}, torch {machine.torch}, triton {machine.triton}, tier {results.tier}, "
        f"seed {results.seed}, {results.seconds:.0f} s",
        style="dim",
        soft_wrap=True,
        highlight=False,
    )
    # What the next level lacks is for the course staff, who find it in results.json.
    isolation = "; ".join(part for part in results.assurance.split("; ") if not part.startswith("for L"))
    isolation = re.sub(r"^L(\d)", r"level \1", isolation)  # L2 alone would read as the cache
    console.print(
        f"isolation of your code: {isolation}", style="dim", soft_wrap=True, highlight=False, markup=False
    )
