"""A file has its own names alone while its kernels run.

Triton's interpreter, 3.6 to 3.9, puts every name of its own module into the globals of a kernel's file that
has none by that name: `np`, `tl` or `torch` would be there after a launch, and on a GPU they are not.
"""

from __future__ import annotations

import functools
from typing import Any

from triton.runtime import interpreter

from grader.worker.interpreted.syntax import PREFIX


def leave_a_file_its_own_names() -> None:
    """Take out of a file's globals what the interpreter puts there, but for what rewritten kernels call."""
    plain = interpreter.FunctionRewriter._compile_and_exec

    @functools.wraps(plain)
    def compiled(self: Any, tree: object) -> object:
        names = self.fn.__globals__
        own = set(names)
        try:
            return plain(self, tree)
        finally:
            for name in names.keys() - own:
                if not name.startswith(PREFIX):
                    del names[name]

    interpreter.FunctionRewriter._compile_and_exec = compiled
