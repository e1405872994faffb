"""What a worker says of an error: data that earns nothing, and from which the judge makes a verdict."""

from __future__ import annotations

import errno
import linecache
import re
import traceback

MAX_TEXT = 4000  # characters of an error message that travel
MAX_FRAMES = 8
COMPILE_ERRORS = {
    "CompilationError",
    "CompileTimeAssertionFailure",
    "OutOfResources",
    "PTXASError",
    "UnsupportedLanguageConstruct",
    "BuildError",
}


def describe(error: BaseException, path: str) -> dict:
    """An error as data: category, type, text, and the frames of the student's file, the last one first."""
    chain, link = [], error
    while link is not None and len(chain) < 8:
        chain.append(link)
        link = link.__cause__ or link.__context__
    names = {type(link).__name__ for link in chain}
    text = str(error)
    if isinstance(error, SystemExit):
        category, text = "exit", f"the file called sys.exit({error.code!r})"
    elif _not_started(chain):
        category = "not started"
    elif isinstance(error, MemoryError) or "can't allocate memory" in text:
        category, text = "host memory", text or "out of memory"
    elif _beyond_a_limit(error):
        category = "limit"
    elif "OutOfMemoryError" in names or "out of memory" in text:
        category = "gpu memory"
    elif "illegal memory access" in text or "misaligned address" in text or "device-side assert" in text:
        category = "illegal access"
    elif names & COMPILE_ERRORS or isinstance(error, SyntaxError):
        category = "compile"
    else:
        category = "exception"
    frames = []
    for link in chain[::-1]:
        for frame in reversed(traceback.extract_tb(link.__traceback__)):
            if frame.filename == path and len(frames) < MAX_FRAMES:
                line = linecache.getline(path, frame.lineno).strip()[:200]
                frames.append({"line": frame.lineno, "function": frame.name, "code": line})
    if type(error).__name__ == "BuildError" and error.line:
        code = linecache.getline(path, error.line).strip()[:200]
        frames.insert(0, {"line": error.line, "function": "", "code": code})
    if isinstance(error, SyntaxError) and error.filename == path:
        frames.insert(
            0, {"line": error.lineno or 1, "function": "", "code": (error.text or "").strip()[:200]}
        )
    return {"category": category, "type": type(error).__name__, "text": text[:MAX_TEXT], "frames": frames}


def _beyond_a_limit(error: BaseException) -> bool:
    """One process, thread, open file or byte on disk more than a worker may have."""
    codes = (errno.EAGAIN, errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
    if isinstance(error, OSError) and error.errno in codes:
        return True
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def _not_started(chain: list[BaseException]) -> bool:
    """A placeholder was met: in host code an exception of its own, in a kernel a failed static assertion.

    Triton quotes the kernel around an assertion, marks and all: only the last line is its own text.
    """
    if any(isinstance(link, NotImplementedError) for link in chain):
        return True
    last_lines = [str(link).strip().splitlines()[-1] for link in chain if str(link).strip()]
    return any(re.fullmatch(r"(.*['\"(: ])?TODO \d+: .*", line) for line in last_lines if "BEGIN" not in line)
