"""What the judge found out about one case: a verdict, its reason, and everything a student needs to go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from grader.error_map import ErrorMap
from grader.spec import Verdict

MAX_FRAMES = 8


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
    error_map: ErrorMap | None = None  # where the wrong elements lie, of a wrong result


def failure(error: dict, loading: bool = False) -> Outcome:
    """The outcome for an error that a worker described; its words are shown, and only ever cost points."""
    category, kind = error.get("category"), printable(str(error.get("type", "")))
    text = printable(str(error.get("text", "")))
    claimed = error.get("frames")
    frames = tuple(map(_frame, claimed[:MAX_FRAMES])) if isinstance(claimed, list) else ()
    where = f"{kind}: {text}" if text else kind
    verdict, reason = Verdict.CRASHED, ""
    if category == "not started":
        verdict, where = Verdict.NOT_STARTED, text
    elif category in ("host memory", "gpu memory"):
        verdict, reason = Verdict.OUT_OF_MEMORY, category.split()[0].upper()
    elif category == "limit":
        verdict = Verdict.RESOURCE_LIMIT
    elif category == "exit":
        where = text
    elif category == "compile" or loading or _wrong_signature(kind, text, frames):
        verdict = Verdict.COMPILE_ERROR
    return Outcome(verdict, reason, where=where, frames=frames)


def _frame(claimed) -> dict:
    """A frame as a worker told it, made of nothing but a line number and one line of text each."""
    claimed = claimed if isinstance(claimed, dict) else {}
    line = claimed.get("line")
    return {
        "line": line if isinstance(line, int) and 0 < line < 10**7 else 0,
        "function": one_line(str(claimed.get("function", ""))),
        "code": one_line(str(claimed.get("code", ""))),
    }


def one_line(text: str) -> str:
    """At most 200 characters that are safe to show, without line breaks."""
    return " ".join(printable(text).split())[:200]


def printable(text: str) -> str:
    """Text safe to show and to store: no control characters but newline and tab, no lone surrogates."""
    return "".join(char for char in text if char in "\n\t" or char.isprintable())


def _wrong_signature(kind: str, text: str, frames) -> bool:
    """Raised by the call itself, before any line of the function ran."""
    said = any(word in text for word in ("unexpected", "positional", "missing"))
    return not frames and (kind == "AttributeError" or (kind == "TypeError" and "argument" in text and said))
