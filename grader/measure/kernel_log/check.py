"""Check a kernel log, one line for each finding, and count its steps for the grade."""

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
    """Outcomes of the steps of one operation; a step without a comparison is in none of the last three."""

    steps: int
    wrong: int  # or without a time
    faster: int
    slower: int
    same: int


def trivial(prediction: str) -> bool:
    """Return whether a prediction is too short to say anything."""
    return len(prediction.split()) < FEWEST_WORDS or len(prediction.strip()) < FEWEST_LETTERS


def check(tree: Path) -> list[str]:
    """List what is wrong with the kernel log of a tree, in words for a student."""
    try:
        return list(islice(_problems(tree), MOST_PROBLEMS))
    except LogError as error:
        return [str(error)]


def summary(tree: Path) -> dict[str, Steps]:
    """Count the steps by operation, of those whose record can be read."""
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
        yield f'{FOLDER} has no step: make one with `make log STEP="…"`'
    yield from _of_files(tree, list(known.values()))
    try:
        text = read(tree / MARKDOWN, MARKDOWN_BYTES).decode("utf-8")
    except LogError as error:
        yield f"{error}; `make log` writes it"
        return
    except UnicodeDecodeError:
        yield f"{MARKDOWN} is not UTF-8"
        return
    yield from problems(text, known)


def _of_records(tree: Path, known: dict[int, Stored]) -> Iterator[str]:
    """Check numbers, hashes and snapshots; adds each step that can be read to `known`."""
    last, expected = "", 1
    for path in folders(tree):
        name = one_line(path.name)
        if path.name == PENDING:
            yield f"{FOLDER}/{PENDING}: a prediction was not measured; run `make log` again"
            continue
        if not re.fullmatch(r"[0-9]{4}", path.name) or path.is_symlink() or not path.is_dir():
            yield f"{FOLDER}/{name} is not a step: remove it"
            continue
        number = int(path.name)
        if number != expected:
            yield f"step {expected} is missing: {FOLDER} continues with {name}"
        gap, expected = number != expected, number + 1
        try:
            data = read(path / RECORD, RECORD_BYTES)
            digest = hashlib.sha256(data).hexdigest()
            record = parse(data)
        except LogError as error:
            yield f"step {number}: {error}"
            last = None  # the next step's hash cannot be checked
            continue
        if not gap and last is not None and record.previous != last:
            yield f"step {number}: the chain is broken: it does not follow the present step {number - 1}"
        last, step = digest, Stored(record, digest, path)
        if record.number != number:
            yield f"step {number}: its record says step {record.number}"
            continue
        if trivial(record.prediction):
            yield f"step {number}: its prediction is missing or too short"
        earlier = before(list(known.values()), record.op)
        if record.compared_with != (earlier.record.number if earlier else 0):
            yield f"step {number}: it was compared with step {record.compared_with}, which is the wrong one"
        yield from _of_snapshot(step, earlier)
        known[number] = step


def _of_snapshot(step: Stored, earlier: Stored | None) -> Iterator[str]:
    record, number = step.record, step.record.number
    with os.scandir(step.folder) as entries:
        names = {entry.name for entry, _ in zip(entries, range(MOST_FILES + 2), strict=False)}
    for name in sorted(names - {RECORD, *record.files}):
        yield f"step {number}: {one_line(name)} does not belong to the snapshot"
    for name, digest in record.files.items():
        try:
            if hashlib.sha256(read(step.folder / name, FILE_BYTES)).hexdigest() != digest:
                yield f"step {number}: {name} is not the file that was measured"
        except LogError as error:
            yield f"step {number}: {error}"
    try:
        lines = lines_changed(step.folder / record.name, earlier)
    except LogError:
        return  # reported above, for the step that has the file
    if lines != (record.lines_added, record.lines_removed):
        yield f"step {number}: wrong line counts in its record; right: {lines[0]} added, {lines[1]} removed"


def lines_changed(file: Path, earlier: Stored | None) -> tuple[int, int]:
    """Count the lines added and removed since the step that a file is compared with."""
    if earlier is None:
        return 0, 0
    return changed_lines(read(earlier.folder / earlier.record.name, FILE_BYTES), read(file, FILE_BYTES))


def _of_files(tree: Path, steps: list[Stored]) -> Iterator[str]:
    """Report kernels that were changed since their last step; deleted files are ignored."""
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
                yield f"{Path(record.file).with_name(name)}: changed since step {record.number}: `make log`"
