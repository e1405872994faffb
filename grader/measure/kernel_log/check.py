"""Look for what is wrong in a kernel log, one line for each finding, and count its steps for the grade."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from grader.measure.kernel_log.prose import problems
from grader.measure.kernel_log.record import MOST_FILES, Record
from grader.measure.kernel_log.store import (
    FILE_BYTES,
    FOLDER,
    MARKDOWN,
    MARKDOWN_BYTES,
    PENDING,
    RECORD,
    RECORD_BYTES,
    LogError,
    Stored,
    before,
    changed_lines,
    folders,
    parse,
    read,
)
from grader.system.text import one_line

MOST_PROBLEMS = 100
FEWEST_WORDS, FEWEST_LETTERS = 3, 15


@dataclass(frozen=True)
class Steps:
    """How the steps of one operation ended; those compared with nothing are in none of the last three."""

    steps: int
    wrong: int  # or failed
    faster: int
    slower: int
    same: int


def trivial(prediction: str) -> bool:
    """Whether a prediction says too little to be one."""
    return len(prediction.split()) < FEWEST_WORDS or len(prediction.strip()) < FEWEST_LETTERS


def check(tree: Path) -> list[str]:
    """What is wrong with the kernel log of a tree, in words for a student; empty where nothing is."""
    try:
        return list(islice(_problems(tree), MOST_PROBLEMS))
    except LogError as error:
        return [str(error)]


def summary(tree: Path) -> dict[str, Steps]:
    """Steps by operation, of those whose record can be read."""
    found: dict[str, list[Record]] = {}
    for path in folders(tree):
        try:
            record = parse(read(path / RECORD, RECORD_BYTES))
        except LogError:
            continue
        found.setdefault(record.op, []).append(record)
    return {op: _count(records) for op, records in found.items()}


def _count(records: list[Record]) -> Steps:
    pairs = [one.timing.against_previous for one in records if one.timing and one.timing.against_previous]
    faster, slower = sum(pair.low > 1 for pair in pairs), sum(pair.high < 1 for pair in pairs)
    wrong = sum(record.status != "ok" for record in records)
    return Steps(len(records), wrong, faster, slower, len(pairs) - faster - slower)


def _problems(tree: Path) -> Iterator[str]:
    known: dict[int, Stored] = {}
    yield from _of_records(tree, known)
    if not known:
        yield f"{FOLDER} has no step: make log"
    yield from _of_files(tree, list(known.values()))
    try:
        text = read(tree / MARKDOWN, MARKDOWN_BYTES).decode("utf-8")
    except LogError as error:
        yield f"{error}; make log writes it"
        return
    except UnicodeDecodeError:
        yield f"{MARKDOWN} is not UTF-8"
        return
    yield from problems(text, known)


def _of_records(tree: Path, known: dict[int, Stored]) -> Iterator[str]:
    """Numbers, hashes and snapshots; fills `known` with what can be read."""
    last, expected = "", 1
    for path in folders(tree):
        name = one_line(path.name)
        if path.name == PENDING:
            yield f"{FOLDER}/{PENDING}: a prediction was not measured; make log again"
            continue
        if not re.fullmatch(r"[0-9]{4}", path.name) or path.is_symlink() or not path.is_dir():
            yield f"{FOLDER}/{name} is no step"
            continue
        number = int(path.name)
        if number != expected:
            yield f"step {expected} is missing: {FOLDER} goes on with {name}"
        gap, expected = number != expected, number + 1
        try:
            data = read(path / RECORD, RECORD_BYTES)
            digest = hashlib.sha256(data).hexdigest()
            record = parse(data)
        except LogError as error:
            yield f"step {number}: {error}"
            last = None  # what follows cannot be compared with it
            continue
        if not gap and last is not None and record.previous != last:
            yield f"step {number}: the chain is broken: it was not made after this step {number - 1}"
        last, step = digest, Stored(record, digest, path)
        if record.number != number:
            yield f"step {number}: its record says step {record.number}"
            continue
        if trivial(record.prediction):
            yield f"step {number}: there is no prediction"
        earlier = before(list(known.values()), record.op)
        if record.compared_with != (earlier.record.number if earlier else 0):
            yield f"step {number}: step {record.compared_with} is not the one to compare it with"
        yield from _of_snapshot(step, earlier)
        known[number] = step


def _of_snapshot(step: Stored, earlier: Stored | None) -> Iterator[str]:
    record, number = step.record, step.record.number
    with os.scandir(step.folder) as entries:
        names = {entry.name for entry, _ in zip(entries, range(MOST_FILES + 2), strict=False)}
    for name in sorted(names - {RECORD, *record.files}):
        yield f"step {number}: {one_line(name)} is not of the snapshot"
    for name, digest in record.files.items():
        try:
            if hashlib.sha256(read(step.folder / name, FILE_BYTES)).hexdigest() != digest:
                yield f"step {number}: {name} is not the file that was measured"
        except LogError as error:
            yield f"step {number}: {error}"
    try:
        lines = lines_changed(step.folder / record.name, earlier)
    except LogError:
        return  # said above, at the step whose file it is
    if lines != (record.lines_added, record.lines_removed):
        yield f"step {number}: its record says other lines than {lines[0]} added and {lines[1]} removed"


def lines_changed(file: Path, earlier: Stored | None) -> tuple[int, int]:
    """Lines added and removed since the step that a file is compared with."""
    if earlier is None:
        return 0, 0
    return changed_lines(read(earlier.folder / earlier.record.name, FILE_BYTES), read(file, FILE_BYTES))


def _of_files(tree: Path, steps: list[Stored]) -> Iterator[str]:
    """Kernels that are no longer what their last step measured; one that was deleted is none."""
    latest = {step.record.op: step for step in steps}
    for step in {step.record.file: step for step in steps}.values():
        record = step.record
        names = record.files if latest[record.op] is step else [record.name]
        for name in names:
            path = (tree / record.file).with_name(name)
            if not path.exists():
                continue
            try:
                same = hashlib.sha256(read(path, FILE_BYTES)).hexdigest() == record.files[name]
            except LogError as error:
                yield f"{record.file}: {error}"
                continue
            if not same:
                yield f"{Path(record.file).with_name(name)}: changed since step {record.number}: make log"
