"""A worker's report of an error: the judge makes a verdict of it, which can only cost points."""

from __future__ import annotations

import contextlib
import errno
import itertools
import linecache
import os
import re
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from grader.codegen.nvcc import BuildError, NotPermittedError
from grader.system.text import one_line, printable
from grader.worker.protocol import Json, JsonObject

MAX_TEXT = 4000  # characters of an error message that are sent
MAX_CODE = 200  # characters of a line of code
MAX_FRAMES = 8
MAX_SHAPES, MAX_AXES = 12, 8
MOST_LINES = 10**7  # of a file
_OWN = re.compile(r"\bgrader(?:\.\w+|\.<locals>)+\(\)")  # what stands around a launch, in Python's own words
COMPILE_ERRORS = {
    "CompilationError",
    "CompileTimeAssertionFailure",
    "OutOfResources",
    "PTXASError",
    "StaticAssertError",
    "UnsupportedLanguageConstruct",
    "BuildError",
}


@dataclass(frozen=True)
class Frame:
    """A line of the student's file in the traceback of an error."""

    line: int  # from 1; 0 if it is not known
    function: str
    code: str

    @classmethod
    def claimed(cls, claim: Json) -> Frame:
        """Read a frame from a reply: a line number, and one line of text for each other field."""
        fields = claim if isinstance(claim, dict) else {}
        line = fields.get("line")
        return cls(
            line if isinstance(line, int) and 0 < line < MOST_LINES else 0,
            one_line(str(fields.get("function", ""))),
            one_line(str(fields.get("code", ""))),
        )


@dataclass(frozen=True)
class ErrorReport:
    """An error as data, with the frames of the student's file, innermost first."""

    category: str
    type: str
    text: str
    frames: tuple[Frame, ...]
    shapes: dict[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # of blocks in the innermost frame's line
    numbers: dict[str, int] = field(default_factory=dict)  # whole ones that this line names

    @classmethod
    def claimed(cls, reply: JsonObject) -> ErrorReport:
        """Read a report from a reply, whose fields may have any type: printable text, and frames."""
        category, frames = reply.get("category"), reply.get("frames")
        return cls(
            category if isinstance(category, str) else "",
            printable(str(reply.get("type", ""))),
            printable(str(reply.get("text", ""))),
            tuple(map(Frame.claimed, frames[:MAX_FRAMES])) if isinstance(frames, list) else (),
            _claimed_shapes(reply.get("shapes")),
            _claimed_numbers(reply.get("numbers")),
        )


def _claimed_shapes(claim: Json) -> dict[str, tuple[int, ...]]:
    """Read shapes by name; what is no name with whole numbers is left out."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in claim.items() if isinstance(claim, dict) else ():
        sizes = [size for size in shape if type(size) is int] if isinstance(shape, list) else []
        if name.isidentifier() and isinstance(shape, list) and len(sizes) == len(shape) <= MAX_AXES:
            found[name] = tuple(sizes)
    return dict(itertools.islice(found.items(), MAX_SHAPES))


def _claimed_numbers(claim: Json) -> dict[str, int]:
    """Read whole numbers by name; what is neither a name nor a number is left out."""
    given = claim.items() if isinstance(claim, dict) else ()
    found = {name: one for name, one in given if name.isidentifier() and type(one) is int and _is_short(one)}
    return dict(itertools.islice(found.items(), MAX_SHAPES))


def _is_short(number: int) -> bool:
    return abs(number) < 1 << 63


def describe(error: BaseException, path: str, parts: Sequence[str] = ()) -> ErrorReport:
    """Describe an error, with the frames of the file at `path`, and of the student's other files."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and len(chain) < 8:
        chain.append(link)
        link = link.__cause__ or link.__context__
    names = {type(one).__name__ for one in chain}
    text = _OWN.sub("the launch", str(error))
    if text.rstrip().endswith("^"):  # Triton quotes a call; the message is of what that calls
        last = str(chain[-1]).strip().splitlines() or [""]
        text += f"\n{type(chain[-1]).__name__}({last[-1]!r})"
    if isinstance(error, SystemExit):
        category, text = "exit", f"the file called sys.exit({error.code!r})"
    elif _not_started(chain, (path, *parts)):
        category = "not started"
    elif isinstance(error, MemoryError) or "can't allocate memory" in text:
        category, text = "host memory", text or "out of memory"
    elif _beyond_a_limit(error):
        category = "limit"
    elif "OutOfMemoryError" in names or "out of memory" in text:
        category = "gpu memory"
    elif "illegal memory access" in text or "misaligned address" in text or "device-side assert" in text:
        category = "illegal access"
    elif isinstance(error, NotPermittedError):
        category = "not permitted"
    elif names & COMPILE_ERRORS or isinstance(error, SyntaxError):
        category = "compile"
    elif "InterpreterError" in names and not isinstance(chain[-1], AssertionError):
        category = "interpreter"
    else:
        category = "exception"
    frames: list[Frame] = []
    shapes: dict[str, tuple[int, ...]] | None = None
    numbers: dict[str, int] = {}
    for one in chain[::-1]:
        for frame, line in reversed([*traceback.walk_tb(one.__traceback__)]):
            file = frame.f_code.co_filename
            if file in (path, *parts) and len(frames) < MAX_FRAMES:
                other = "" if file == path else f" in {os.path.basename(file)}"
                code = linecache.getline(file, line).strip()[:MAX_CODE]
                frames.append(Frame(line, frame.f_code.co_name + other, code))
                if shapes is None:
                    shapes, numbers = _shapes(frame.f_locals, code), _numbers(frame.f_locals, code)
    if isinstance(error, (BuildError, NotPermittedError)) and error.line:
        frames.insert(0, Frame(error.line, "", linecache.getline(path, error.line).strip()[:MAX_CODE]))
    if isinstance(error, SyntaxError) and error.filename == path:
        frames.insert(0, Frame(error.lineno or 1, "", (error.text or "").strip()[:MAX_CODE]))
    return ErrorReport(category, type(error).__name__, text[:MAX_TEXT], tuple(frames), shapes or {}, numbers)


def _shapes(values: Mapping[str, object], code: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the blocks and tensors that a line names."""
    found = {}
    for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", code)):
        value = values.get(name)
        # By the name of its type: the judge reads reports, too, and need not import Triton for that.
        if type(value).__module__.partition(".")[0] in ("torch", "triton"):
            with contextlib.suppress(Exception):  # no shape, or one without numbers
                found[name] = tuple(int(size) for size in value.shape)  # type: ignore[attr-defined]
    return dict(itertools.islice(found.items(), MAX_SHAPES))


def _numbers(values: Mapping[str, object], code: str) -> dict[str, int]:
    """Return the whole numbers that a line names, also those that are constants of compilation."""
    found = {}
    for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", code)):
        value = values.get(name)
        value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
        if type(value) is int and _is_short(value):
            found[name] = value
    return dict(itertools.islice(found.items(), MAX_SHAPES))


def _beyond_a_limit(error: BaseException) -> bool:
    """Return whether the error is an exceeded limit of processes, threads, open files or bytes on disk."""
    codes = (errno.EAGAIN, errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
    if isinstance(error, OSError) and error.errno in codes:
        return True
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def _not_started(chain: list[BaseException], files: Collection[str]) -> bool:
    """Return whether a TODO placeholder raised the error: an exception, or in a kernel a static assertion.

    An exception of a library is none: it was raised in another file than the student's `files`. Triton quotes
    the kernel around a static assertion with its TODO marks; only the last line is the message.
    """
    for link in chain:
        raised_in = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(link.__traceback__)][-1:]
        if isinstance(link, NotImplementedError) and (not raised_in or raised_in[0] in files):
            return True
    last_lines = [str(link).strip().splitlines()[-1] for link in chain if str(link).strip()]
    return any(re.fullmatch(r"(.*['\"(: ])?TODO \d+: .*", line) for line in last_lines if "BEGIN" not in line)
