"""What the file alone decides, before anything of it runs; imports no torch."""

from __future__ import annotations

import contextlib
import io
import tokenize
import warnings
from collections.abc import Iterable
from dataclasses import replace

from grader.course.parts import Part
from grader.course.spec import Exercise, Reason, Verdict
from grader.course.submission import Obstacle, Submission
from grader.course.todos import Todo
from grader.results.findings import Frame, OpenTodo
from grader.results.outcome import Outcome
from grader.system.text import one_line

VERDICTS = {
    Obstacle.MISSING: (Verdict.NOT_STARTED, Reason.NONE),
    Obstacle.NO_FILE: (Verdict.POLICY, Reason.INTAKE),
    Obstacle.TOO_LARGE: (Verdict.POLICY, Reason.INTAKE),
    Obstacle.UNREADABLE: (Verdict.COMPILE_ERROR, Reason.NONE),
    Obstacle.NO_TEXT: (Verdict.COMPILE_ERROR, Reason.NONE),
}


def check(submission: Submission, exercise: Exercise) -> Outcome | None:
    """What can be said of a file for one exercise without running it; None where it is ready to run."""
    if submission.obstacle:
        return Outcome(*VERDICTS[submission.obstacle], where=submission.words)
    if not submission.text.strip():
        return Outcome(Verdict.NOT_STARTED, where=f"{submission.name} is empty")
    if exercise.native:
        todos = submission.open_todos
        return Outcome(Verdict.NOT_STARTED, open_todos=listed(todos)) if todos else None
    refused = _encoding(submission) or _syntax(submission)
    if refused:
        return refused
    # Placeholders in host code always stop the call; one in a kernel may lie in a branch that this call
    # leaves out.
    certain = [todo for todo in submission.open_todos_of(exercise.name) if not todo.in_kernel]
    if certain:
        return Outcome(Verdict.NOT_STARTED, open_todos=listed(submission.open_todos or certain))
    return None


def check_part(part: Part) -> Outcome | None:
    """The same for another file of the student, and for the functions that are imported from it."""
    submission = part.submission
    imported = f"{submission.name}, which this file imports,"
    if submission.obstacle:
        return Outcome(*VERDICTS[submission.obstacle], where=f"{imported} is needed: {submission.words}")
    refused = _encoding(submission) or _syntax(submission)
    if refused:
        return replace(refused, where=f"{imported} has an error: {refused.where}", frames=())
    for name in sorted(part.names):
        for todo in submission.open_todos_of(name):
            if not todo.in_kernel:
                words = f"{imported} has open tasks: TODO {todo.number} in line {todo.line}"
                return Outcome(Verdict.NOT_STARTED, where=words)
    return None


def _encoding(submission: Submission) -> Outcome | None:
    """POLICY where Python would read other code than the screen does."""
    with contextlib.suppress(SyntaxError):  # an unknown encoding: the compiler says so
        encoding, _ = tokenize.detect_encoding(io.BytesIO(submission.data or b"").readline)
        if encoding not in ("utf-8", "utf-8-sig"):
            words = f"{submission.name} declares the encoding {encoding}, not UTF-8"
            return Outcome(Verdict.POLICY, Reason.INTAKE, where=words)
    return None


def _syntax(submission: Submission) -> Outcome | None:
    """COMPILE_ERROR with its line where the file is no Python."""
    try:
        with warnings.catch_warnings():
            # An invalid escape is the student's to see, and no reason to stop.
            warnings.simplefilter("ignore")
            compile(submission.tree, submission.name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        number = getattr(error, "lineno", None) or 1
        code = getattr(error, "text", "")
        if not code and isinstance(error, SyntaxError):
            code = submission.line(number)  # found in the tree, which does not know the source
        frame = Frame(line=number, function="", code=one_line(code))
        text = one_line(str(getattr(error, "msg", "") or error)) or "the file is nested too deeply"
        return Outcome(Verdict.COMPILE_ERROR, where=f"{type(error).__name__}: {text}", frames=(frame,))
    return None


def listed(todos: Iterable[Todo]) -> tuple[OpenTodo, ...]:
    """Open TODOs as a report shows them."""
    return tuple(OpenTodo(number=todo.number, text=one_line(todo.text), line=todo.line) for todo in todos)
