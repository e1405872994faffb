"""Turn a worker's error report into an outcome; its texts are only shown."""

from __future__ import annotations

from grader.course.spec import Reason, Verdict
from grader.results.findings import Frame
from grader.results.outcome import Outcome
from grader.worker.error_report import ErrorReport


def failure(error: ErrorReport, loading: bool = False) -> Outcome:
    """Return the outcome for a worker's error report, whose text is shown; a report can only cost points."""
    category, kind, text = error.category, error.type, error.text
    frames = tuple(Frame(line=one.line, function=one.function, code=one.code) for one in error.frames)
    where = f"{kind}: {text}" if text else kind
    verdict, reason = Verdict.CRASHED, Reason.NONE
    if category == "not started":
        verdict, where = Verdict.NOT_STARTED, text
    elif category == "host memory":
        verdict, reason = Verdict.OUT_OF_MEMORY, Reason.HOST
    elif category == "gpu memory":
        verdict, reason = Verdict.OUT_OF_MEMORY, Reason.GPU
    elif category == "limit":
        verdict = Verdict.RESOURCE_LIMIT
    elif category == "not permitted":
        verdict, where = Verdict.POLICY, text
    elif category == "exit":
        where = text
    elif category == "compile" or loading or _wrong_signature(error):
        verdict = Verdict.COMPILE_ERROR
    interpreter = verdict is Verdict.CRASHED and category == "interpreter"
    return Outcome(
        verdict,
        reason,
        where=where,
        frames=frames,
        in_the_interpreter=interpreter,
        shapes=error.shapes,
        numbers=error.numbers,
    )


def _wrong_signature(error: ErrorReport) -> bool:
    """Return whether the call itself raised the error, before any line of the function ran."""
    if error.frames:
        return False
    said = any(word in error.text for word in ("unexpected", "positional", "missing"))
    return error.type == "AttributeError" or (error.type == "TypeError" and "argument" in error.text and said)
