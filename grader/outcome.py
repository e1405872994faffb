"""What the judge found out about one case: a verdict, its reason, and everything a student needs to go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from grader.spec import Verdict


@dataclass(frozen=True, eq=False)
class Outcome:
    """A verdict with its reason after the slash, and the parts of the message that goes with it."""

    verdict: Verdict
    reason: str = ""  # UNWRITTEN, STALE, ... as in `WRONG/UNWRITTEN`
    share: float = 0.0  # of the case's points, 0 to 1
    where: str = ""  # the first wrong element, or the error's text
    pattern: str = ""
    cause: str = ""
    hint: int | None = None
    frames: tuple[dict, ...] = ()  # of the student's file, last one first
    printed: str = ""  # what the student's code wrote, for failures
    used: float | None = None  # share of the tolerance that the worst element used
    figures: dict[str, Any] = field(default_factory=dict)  # timings or codegen facts


def failure(error: dict, loading: bool = False) -> Outcome:
    """The outcome for an error that a worker described; its words are shown, and only ever cost points."""
    category, kind = error.get("category"), str(error.get("type", ""))
    text = str(error.get("text", ""))
    frames = tuple(frame for frame in error.get("frames", []) if isinstance(frame, dict))
    where = f"{kind}: {text}" if text else kind
    verdict, reason = Verdict.CRASHED, ""
    if category == "not started":
        verdict, where = Verdict.NOT_STARTED, text
    elif category in ("host memory", "gpu memory"):
        verdict, reason = Verdict.OUT_OF_MEMORY, category.split()[0].upper()
    elif category == "exit":
        where = text
    elif category == "compile" or loading or _wrong_signature(kind, text, frames):
        verdict = Verdict.COMPILE_ERROR
    return Outcome(verdict, reason, where=where, frames=frames)


def _wrong_signature(kind: str, text: str, frames) -> bool:
    """Raised by the call itself, before any line of the function ran."""
    return not frames and (
        kind == "AttributeError"
        or (kind == "TypeError" and "argument" in text and ("unexpected" in text or "positional" in text))
    )
