"""The steps of one program as data of a page: by statement, with addresses, masks, values and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grader.site.figures import program_words as words
from grader.site.figures.statements import Statement, by_statement
from grader.site.figures.trace import Access, Step


def of_program(steps: Sequence[Step], known: list[Statement], item_bytes: Mapping[str, int]) -> list[dict]:
    """Return a program's steps; `item_bytes` are the bytes of an element, by the name of the buffer."""
    return [_step(statement, step, item_bytes) for statement, step in by_statement(list(steps), known)]


def _step(statement: Statement, step: Step, item_bytes: Mapping[str, int]) -> dict:
    accesses = [_access(access, item_bytes[access.buffer]) for access in step.accesses]
    changed = {name: words.value(one) for name, one in step.changed.items()}
    for access in step.accesses:
        if access.kind != "load":
            continue
        outside = access.outside or (False,) * len(access.mask)
        defined = [
            (on or access.other) and not out for on, out in zip(access.mask, outside, strict=True)
        ]  # fmt: skip
        changed = {name: words.undefined(one, defined) for name, one in changed.items()}
    return {
        "lines": [statement.first, statement.last],
        "phases": statement.phases,
        "accesses": accesses,
        "changed": changed,
        "words": words.of_step(statement, accesses, changed),
    }


def _access(access: Access, item_bytes: int) -> dict:
    told = {
        "kind": access.kind,
        "buffer": access.buffer,
        "offsets": access.offsets,
        "bytes": [offset * item_bytes for offset in access.offsets],
        "item_bytes": item_bytes,
        "mask": access.mask,
        "values": [words.shown(one) for one in access.values],
        "other": access.other,
    }
    return told | ({"outside": access.outside} if any(access.outside) else {})
