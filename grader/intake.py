"""What a look at a submitted file decides before anything of it runs; imports no torch."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tokenize
import warnings
from pathlib import Path

from grader.outcome import Outcome, one_line
from grader.spec import Exercise, Verdict
from grader.todos import open_errors, open_todos, open_todos_of

MOST_BYTES = 1 << 20  # of a student's file


def read_file(file: Path, exercise: Exercise) -> Outcome | None:
    """What a look at the file alone decides; None where it is ready to run."""
    try:
        facts = os.lstat(file)
        if not stat.S_ISREG(facts.st_mode):
            return Outcome(
                Verdict.POLICY, "INTAKE", where=f"{file.name} is a folder, a link or a pipe, not a file"
            )
        if facts.st_size > MOST_BYTES:
            words = f"{file.name} has {facts.st_size:,} bytes, at most {MOST_BYTES:,} are read"
            return Outcome(Verdict.POLICY, "INTAKE", where=words)
        data = file.read_bytes()
        source = data.decode("utf-8-sig")
    except FileNotFoundError:
        return Outcome(Verdict.NOT_STARTED, where=f"{file.name} is missing")
    except UnicodeDecodeError as error:
        return Outcome(Verdict.COMPILE_ERROR, where=f"{file.name} is not UTF-8 text (byte {error.start})")
    except OSError as error:
        return Outcome(Verdict.COMPILE_ERROR, where=f"{file.name} cannot be read: {error.strerror}")
    if not source.strip():
        return Outcome(Verdict.NOT_STARTED, where=f"{file.name} is empty")
    if exercise.native:
        todos = open_errors(source)
        return Outcome(Verdict.NOT_STARTED, figures={"todos": listed(todos)}) if todos else None
    with contextlib.suppress(SyntaxError):  # an unknown encoding: the compiler says so below
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if encoding not in ("utf-8", "utf-8-sig"):  # Python would read other code than the screen does
            return Outcome(
                Verdict.POLICY, "INTAKE", where=f"{file.name} declares the encoding {encoding}, not UTF-8"
            )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # an invalid escape is the student's to see, and no reason to stop
            compile(source, file.name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        code = one_line(getattr(error, "text", "") or "")
        frame = {"line": getattr(error, "lineno", None) or 1, "function": "", "code": code}
        text = one_line(str(getattr(error, "msg", "") or error)) or "the file is nested too deeply"
        return Outcome(Verdict.COMPILE_ERROR, where=f"{type(error).__name__}: {text}", frames=(frame,))
    # Placeholders in host code always stop the call; one in a kernel may lie in a branch that this call
    # leaves out.
    certain = [todo for todo in open_todos_of(source, exercise.name) if not todo.in_kernel]
    if certain:
        return Outcome(Verdict.NOT_STARTED, figures={"todos": listed(open_todos(source) or certain)})
    return None


def listed(todos) -> list[dict]:
    """Open TODOs as a report shows them."""
    return [{"number": todo.number, "text": one_line(todo.text), "line": todo.line} for todo in todos]
