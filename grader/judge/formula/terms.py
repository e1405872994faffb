"""What a reference computes on the way to its outputs: each value with the formula that gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from grader.course.signatures import Inputs
from grader.judge.inputs import numbers, tensors
from grader.judge.without_dynamo import without_dynamo

MOST_LETTERS = 60  # of a formula that a student can still read
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mm": "@"}
NEUTRAL = {"mul": "1", "div": "1", "add": "0", "sub": "0"}  # which change nothing
FUNCTIONS = {name: name for name in ("exp", "log", "sqrt", "rsqrt", "sigmoid", "tanh", "relu", "erf", "abs")}
REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "var": "var"}
SAME = {
    "unsqueeze", "squeeze", "expand", "view", "_unsafe_view", "_to_copy", "to", "clone", "detach", "alias",
    "broadcast_in_dim", "convert_element_type",
}  # fmt: skip
TURNED = {"t", "transpose", "permute"}
KNOWN = {*INFIX, *FUNCTIONS, *REDUCTIONS, *SAME, *TURNED, "copy_", "var_mean"}


class Term(NamedTuple):
    """A formula, such as `x - max(x)`, and its values in fp64; or one number."""

    text: str
    value: torch.Tensor


def terms_of(reference: Callable[..., Sequence[torch.Tensor]], inputs: Inputs) -> list[Term]:
    """Return the inputs, and all values that the reference computes from them, with their formulas.

    `inputs` has tensors in fp64, and numbers. Operators such as softmax are taken apart into simpler ones.
    What has no short formula is left out.
    """
    trace = _Trace(inputs)
    with without_dynamo(), trace:
        reference(**inputs)
    seen = {term.text: term for term in trace.terms}
    named = [
        Term(name, torch.tensor(float(value), dtype=torch.float64)) for name, value in numbers(inputs).items()
    ]
    return [*seen.values(), *named, *(term for term in _reduced(seen.values()) if term.text not in seen)]


def _reduced(terms: Iterable[Term]) -> Iterator[Term]:
    """Yield sums, means and maxima of matrices along either axis."""
    for text, value in terms:
        for axis in (1, 0) if value.dim() == 2 and 1 not in value.shape else ():
            for name, function in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)):
                if len(text) <= MOST_LETTERS // 2:
                    yield Term(f"{name}({text}, axis={axis})", function(value, dim=axis, keepdim=True))


def enclosed(text: str) -> str:
    """Return a formula that can stand beside an operator."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == " " and not depth:
            return f"({text})"
        if letter == "-" and not at:
            return f"({text})"
    return text


class _Trace(TorchDispatchMode):
    """Records operators on tensors, and the formula of each result."""

    def __init__(self, inputs: Inputs):
        super().__init__()
        self.terms: list[Term] = []
        self._known: dict[int, tuple[torch.Tensor, str]] = {}  # by identity, which needs the tensor to live
        for name, value in tensors(inputs).items():
            self._note(value, name)

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, options = func.overloadpacket.__name__, kwargs or {}
        apart = None if name in KNOWN else decomposition_table.get(func)
        if apart:
            with self:
                done = apart(*args, **options)
            if done is not NotImplemented:
                return done
        done = func(*args, **options)
        if name == "copy_":
            self._known[id(done)] = done, self._of(args[1])
        elif name == "var_mean":
            for value, function in zip(done, ("var", "mean"), strict=True):
                self._note(value, self._text(function, args, options))
        elif isinstance(done, torch.Tensor) and name in KNOWN:
            self._note(done, self._text(name, args, options))
        return done

    def _note(self, value: torch.Tensor, text: str) -> None:
        self._known[id(value)] = value, text
        if text and len(text) <= MOST_LETTERS and value.dtype is torch.float64:
            self.terms.append(Term(text, value.detach().clone()))

    def _text(self, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
        """Return the formula of a result; "" where an argument has none."""
        texts = [self._of(one) for one in args[:2]]
        if not texts or not texts[0]:
            return ""
        if name in TURNED:
            return f"{enclosed(texts[0])}.T"
        if name in INFIX:
            if len(texts) < 2 or not texts[1] or options.get("alpha", 1) != 1:
                return ""
            return texts[0] if texts[1] == NEUTRAL.get(name) else _joined(texts[0], INFIX[name], texts[1])
        if name in REDUCTIONS:
            axes = args[1] if len(args) > 1 else None
            axis = (
                f", axis={axes[0] % args[0].dim()}"
                if isinstance(axes, list | tuple) and len(axes) == 1
                else ""
            )
            return f"{REDUCTIONS[name]}({texts[0]}{axis})"
        return f"{FUNCTIONS[name]}({texts[0]})" if name in FUNCTIONS else texts[0]

    def _of(self, value: object) -> str:
        if isinstance(value, torch.Tensor):
            kept, text = self._known.get(id(value), (None, ""))
            return text if kept is value else ""
        return f"{value:g}" if isinstance(value, int | float) else ""


def _joined(left: str, sign: str, right: str) -> str:
    return f"{enclosed(left)} {sign} {enclosed(right)}"
