"""What the types of its operands decide of a builtin is worked out once, and then done with other values.

For each `x + y` Triton's interpreter promotes types, checks shapes and broadcasts, as the compiler does once
for a kernel: that takes most of the time of a short kernel. What it then does is a few calls of its builder,
which depend on the types and constants alone. Here the first call with some types is recorded, as a tracing
compiler does (Griewank and Walther, Evaluating Derivatives, 2008, on tapes), and others repeat the calls of
the builder. Seen in Triton 3.6 to 3.9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

MOST_PLANS = 2000  # of one builtin; a constant that is another one in each iteration makes many
OPERATORS = {
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__",
    "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__and__", "__rand__", "__or__", "__ror__",
    "__xor__", "__rxor__", "__lshift__", "__rlshift__", "__rshift__", "__rrshift__", "__lt__", "__le__",
    "__gt__", "__ge__", "__eq__", "__ne__", "__neg__", "__invert__", "__getitem__", "to", "expand_dims",
    "broadcast_to", "logical_and", "logical_or", "exp", "sqrt", "abs", "cast",
}  # fmt: skip
FUNCTIONS = {
    "add", "sub", "mul", "fma", "div_rn", "where", "maximum", "minimum", "clamp", "abs", "floor", "ceil",
    "cast", "load", "store", "dot", "exp", "exp2", "log", "log2", "sqrt", "sqrt_rn", "rsqrt", "sin", "cos",
    "erf", "arange", "full", "program_id", "num_programs", "expand_dims", "broadcast_to", "trans", "permute",
    "reshape",
}  # fmt: skip
Plan = Callable[[Any, Sequence[tl.tensor]], object]

_recording: list[object] = []  # the call that is recorded; those inside it are a part of it
_known: dict[object, Callable[..., object]] = {}  # by the builtin, what stands in its place


def _new(*_: object) -> object:
    """Stand for the plan of types that were not seen yet."""
    raise NotImplementedError


def repeat_what_types_decide() -> None:
    """Replace builtins, while a kernel runs, by those that work out once what follows from types.

    A Triton release whose interpreter replaces builtins in another way is not changed.
    """
    plain = getattr(interpreter, "_patch_attr", None)
    if plain is None or not hasattr(interpreter, "interpreter_semantic"):
        return

    def patched(place: object, name: str, member: Any, builder: object, scope: Any) -> None:
        if name in (OPERATORS if place is tl.tensor else FUNCTIONS):
            if member not in _known:
                _known[member] = _repeated(member)
            scope.set_attr(place, name, _known[member])
        else:
            plain(place, name, member, builder, scope)

    interpreter._patch_attr = patched


def _repeated(member: Callable[..., object]) -> Callable[..., object]:
    plans: dict[tuple[object, ...], Plan | None] = {}

    def called(*values: object, **options: object) -> object:
        options.pop("_semantic", None)
        types = None if _recording else _types_of(values, options)
        plan = None if types is None else plans.get(types, _new)
        if types is None or plan is None:
            return member(*values, **options, _semantic=interpreter.interpreter_semantic)
        tensors = [one for one in (*values, *options.values()) if one.__class__ is tl.tensor]
        if plan is not _new:
            return plan(interpreter.interpreter_builder, tensors)
        if len(plans) >= MOST_PLANS:
            plans.clear()
        result, plans[types] = _recorded(member, values, options, tensors)
        return result

    return called


class _OtherError(Exception):
    """A value of which its type does not say everything."""


def _types_of(values: Sequence[object], options: dict[str, object]) -> tuple[object, ...] | None:
    """Return what decides what a builtin does with its arguments; None if their types do not say it."""
    key: list[object] = []
    try:
        for value in values:
            _describe(value, key)
        for name, value in options.items():
            key.append(name)
            _describe(value, key)
    except _OtherError:
        return None
    return tuple(key)


def _describe(value: Any, key: list[object]) -> None:
    """Add what decides what is done with a value: the type of a tensor, the value of anything else.

    Raises _OtherError for values of other classes, and for what has tensors inside.
    """
    if value.__class__ is not tl.tensor:
        _describe_constant(value, key)
    elif value.handle.__class__ is TensorHandle:
        key.append(value.type.name)
    else:
        raise _OtherError


def _describe_constant(value: Any, key: list[object]) -> None:
    kind = value.__class__
    if kind is int or kind is bool or kind is str or value is None:
        key += (kind, value)
    elif kind is float:
        # -0.0 is equal to 0.0, and NaN to nothing.
        key += (kind, "nan" if value != value else value, math.copysign(1.0, value))
    elif kind is tl.constexpr:
        key.append(kind)
        _describe_constant(value.value, key)
    elif kind is tuple or kind is list or kind is tl.tuple:
        key += (kind, len(value))
        for one in value:
            _describe_constant(one, key)
    elif kind is slice:
        key.append(kind)
        for one in (value.start, value.stop, value.step):
            _describe_constant(one, key)
    elif kind is tl.dtype:
        key += (kind, value.name)
    else:
        raise _OtherError


class _Recorder:
    """Stands for the builder of the interpreter; notes its calls, and the values that they are made of."""

    def __init__(self, builder: object, handles: Sequence[object]):
        self.calls: list[tuple[str, list[object]]] = []
        self.is_whole = True  # whether all that was done was seen
        self._builder = builder
        self._places = {id(one): f"h{at}" for at, one in enumerate(handles)}
        self._kept: list[object] = [*handles]  # identities stay theirs

    def __getattr__(self, name: str) -> object:
        member = getattr(self._builder, name)
        if not callable(member):
            return member

        def called(*values: object, **options: object) -> object:
            found = member(*values, **options)
            if name.startswith("create_") or isinstance(found, TensorHandle):
                self.is_whole &= not options
                self.calls.append((name, [self.place(value) for value in values]))
                self._places[id(found)] = f"r{len(self.calls) - 1}"
                self._kept.append(found)
            return found

        return called

    def place(self, value: object) -> object:
        """Return the name of a value that was handed over or computed, or the constant itself."""
        if isinstance(value, TensorHandle):
            self.is_whole &= id(value) in self._places
            return _Name(self._places.get(id(value), ""))
        if isinstance(value, list | tuple) and any(isinstance(one, TensorHandle) for one in value):
            self.is_whole = False
        return value


class _Name(str):
    """The name of a handle in a plan."""


def _recorded(
    member: Callable[..., object],
    values: Sequence[object],
    options: dict[str, object],
    tensors: Sequence[tl.tensor],
) -> tuple[object, Plan | None]:
    """Call a builtin; return its result, and what repeats the call, None if that is not possible.

    `tensors` are those among its arguments, in their order.
    """
    # Of the same values, but no two are one object: the next call may have two.
    own = [tl.tensor(_apart(one.handle), one.type) for one in tensors]
    left = iter(own)

    def apart(value: object) -> object:
        return next(left) if value.__class__ is tl.tensor else value

    placed = [apart(value) for value in values]
    named = {name: apart(value) for name, value in options.items()}
    semantic = interpreter.interpreter_semantic
    recorder = _Recorder(semantic.builder, [one.handle for one in own])
    _recording.append(recorder)
    builder, semantic.builder = semantic.builder, recorder
    try:
        result = member(*placed, **named, _semantic=semantic)
    finally:
        semantic.builder = builder
        _recording.pop()
    for at, mine in enumerate(own):
        if result is mine:
            return tensors[at], partial(_handed_back, at)
    return result, _plan(recorder, result, len(own))


def _apart(handle: TensorHandle) -> TensorHandle:
    """Return another object with the same data, of which the same is known."""
    found = TensorHandle(handle.data, handle.dtype)
    found.attr.update(handle.attr)
    return found


def _handed_back(at: int, _builder: object, tensors: Sequence[tl.tensor]) -> tl.tensor:
    return tensors[at]


def _plan(recorder: _Recorder, result: Any, count: int) -> Plan | None:
    """Write a function that repeats the calls; None if something else was done, or another value returned."""
    constants: dict[str, object] = {"new": tl.tensor}
    lines = [f"    h{at} = tensors[{at}].handle" for at in range(count)]

    def text_of(value: object) -> str:
        if isinstance(value, _Name):
            return value
        name = f"c{len(constants)}"
        constants[name] = value
        return name

    for at, (name, values) in enumerate(recorder.calls):
        lines.append(f"    r{at} = builder.{name}({', '.join(map(text_of, values))})")
    if result.__class__ is tl.tensor:
        handle = recorder.place(result.handle) if result.handle is not None else None
        lines.append(f"    return new({text_of(handle)}, {text_of(result.type)})")
    elif result is not None:
        return None
    if not recorder.is_whole:
        return None
    lines = lines or ["    return None"]
    exec("\n".join(["def plan(builder, tensors):", *lines]), constants)  # noqa: S102 - names of the builder alone
    return constants["plan"]  # type: ignore[return-value]
