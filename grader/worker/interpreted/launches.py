"""What Triton's interpreter replaces in Triton's modules while a kernel runs.

Corrected here, of Triton 3.6 to 3.9:

* a function that a kernel calls replaced everything once more, at each call;
* a builtin that a file imported by its name, `from triton.language import load`, was not replaced;
* a function under `@triton.jit` could be called from host code, where the compiler refuses it;
* the variable of tl.range was Python's int (see syntax.py);
* a tl.static_assert that fails was Python's AssertionError, not what an autotuner looks for.

Of Triton 3.6 alone, with NumPy 2.4 or newer: a block with one element was not taken for an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import triton.language as tl
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, InterpreterError

from grader.worker.interpreted.syntax import kernel_range

_patched: list[object] = []  # the modules in which builtins are replaced, while a kernel runs
_inner: list[Any] = []  # what was replaced for functions that the kernel calls
ONLY_BY_NAME = SimpleNamespace(__globals__={"tl": tl})  # for a file that imports builtins alone


class StaticAssertError(CompileTimeAssertionFailure):
    """A tl.static_assert that fails."""

    def __init__(self, text: str):
        super().__init__("", None, text)

    def _format_message(self) -> str:
        return self.error_message or "tl.static_assert: the condition is false"


def replace_once_for_a_launch() -> None:
    """Replace builtins once for a launch, in what its functions see, and correct the replacements."""
    plain = interpreter._patch_lang

    def patched(function: Any) -> Any:
        langs = [one for one in function.__globals__.values() if one is tl or one is tl.core]
        if _patched and all(lang in _patched for lang in langs):
            return interpreter._LangPatchScope()
        scope, outermost = plain(function if langs else ONLY_BY_NAME), not _patched
        _patched.extend(langs or [tl])
        if outermost:
            restore = scope.restore

            def restored() -> None:
                while _inner:
                    _inner.pop().restore()
                _patched.clear()
                restore()

            scope.restore = restored
        else:
            _inner.append(scope)
        return scope

    interpreter._patch_lang = patched
    interpreter._patch_lang_tensor = _and_then(interpreter._patch_lang_tensor, _correct_values)
    interpreter._patch_lang_core = _and_then(interpreter._patch_lang_core, _correct_functions)
    call, rewrite = InterpretedFunction.__call__, InterpretedFunction.rewrite

    def called(self: Any, *args: object, **options: object) -> object:
        if not _patched:
            raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
        return call(self, *args, **options)

    def rewritten(self: Any) -> object:
        if self.fn not in self.rewritten_fn:
            _bind_names(self.fn.__globals__)
        return rewrite(self)

    InterpretedFunction.__call__, InterpretedFunction.rewrite = called, rewritten


def _bind_names(names: dict[str, object]) -> None:
    """Let builtins that a file imported by name compute, while a kernel runs."""
    for name, value in list(names.items()):
        if tl.core.is_builtin(value):
            names[name] = _bound(value)


def _bound(builtin: Any) -> Callable[..., object]:
    def bound(*values: object, **options: object) -> object:
        if _patched:
            options["_semantic"] = interpreter.interpreter_semantic
        return builtin(*values, **options)

    return bound


def _and_then(plain: Callable[..., None], more: Callable[..., None]) -> Callable[..., None]:
    def both(place: object, scope: Any) -> None:
        plain(place, scope)
        more(place, scope)

    return both


def _correct_values(tensor: object, scope: Any) -> None:
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def _correct_functions(lang: object, scope: Any) -> None:
    scope.set_attr(lang, "range", kernel_range)
    scope.set_attr(lang, "static_range", _static_range)
    scope.set_attr(lang, "static_assert", _static_assert)


def _static_range(*bounds: object, **options: object) -> Iterator[int]:
    """Yield constants: numbers, which may be the shape of a block."""
    named = [options[name] for name in ("arg1", "arg2", "step") if options.get(name) is not None]
    return iter(range(*(int(one) for one in (*bounds, *named) if one is not None)))  # type: ignore[call-overload]


def _static_assert(condition: object, message: object = "") -> None:
    if not condition:
        raise StaticAssertError(str(message.value if isinstance(message, tl.constexpr) else message))


def is_static_assert(error: BaseException | None) -> bool:
    """Return whether a tl.static_assert raised what the interpreter reports."""
    while isinstance(error, InterpreterError):
        error = error.__cause__
    return isinstance(error, StaticAssertError)
