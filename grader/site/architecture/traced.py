"""Run `python -m grader` and count the calls between its modules; imports no module of the grader.

    python -m grader.site.architecture.traced calls.json grade --lab 1 --from solutions --tier cpu

Only this process, the judge, is traced: workers run in separate processes.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

HERE = "grader.site.architecture.traced"
MAIN = "grader.__main__"  # calls what is traced, and is not run here: it ends its process


class CallCounter:
    """A profile function: counts calls by the modules of caller and called function.

    The caller is the nearest code of the grader on the stack, so a call through pytest or click counts for
    the module that called pytest or click. Not counted: code that runs while a module is imported, bodies of
    classes, and code made at run time, such as the `__init__` of a dataclass. A generator counts at every
    step.
    """

    def __init__(self, package: Path):
        self.first: dict[str, str] = {}  # modules in the order of their first call, each with its caller
        self.calls: Counter[tuple[str, str]] = Counter()
        self._package = package.resolve()
        self._modules: dict[CodeType, str | None] = {}
        self._imports = threading.local()  # `depth`: how many modules a thread is importing

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call; Python calls this at each call and return."""
        called = self._module(frame.f_code)
        if not called:
            return
        depth = getattr(self._imports, "depth", 0)
        if frame.f_code.co_name == "<module>":
            self._imports.depth = depth + {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not depth and is_function(frame.f_code):
            self._count(frame, called)

    def _count(self, frame: FrameType, called: str) -> None:
        above = frame.f_back
        while above and not self._module(above.f_code):
            above = above.f_back
        caller = (self._module(above.f_code) if above else None) or MAIN
        self.first.setdefault(called, caller)
        self.calls[caller, called] += 1

    def _module(self, code: CodeType) -> str | None:
        """Return the grader's module of a code object; None for other code."""
        if code not in self._modules:
            path = Path(code.co_filename)
            inside = self._package in path.parents
            name = ".".join(path.relative_to(self._package.parent).with_suffix("").parts) if inside else None
            self._modules[code] = None if name == HERE else name
        return self._modules[code]


def is_function(code: CodeType) -> bool:
    """Whether the code is a function; the body of a class keeps its names in a dict."""
    return bool(code.co_flags & CO_OPTIMIZED)


def main(out: str, arguments: Sequence[str]) -> None:
    """Run the grader with these arguments in this process, and write the counts to `out` as JSON."""
    package = Path.cwd() / "grader"
    counter = CallCounter(package)
    sys.argv = ["grader", *arguments]
    threading.setprofile(counter)
    sys.setprofile(counter)
    try:
        importlib.import_module("grader.cli.main").main(prog_name="python -m grader")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        calls = [[*pair, count] for pair, count in counter.calls.items()]
        Path(out).write_text(json.dumps({"first": counter.first, "calls": calls}), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
