"""What Python's statements and functions mean in a kernel.

Triton's interpreter, 3.6 to 3.9, runs a kernel as Python does. The compiler differs:

* the variable of a `for` over `range` is a value of the kernel, with `.to` and a dtype;
* so are the numbers that are assigned to several names at once, and what `+=` and the like assign;
* a parameter that is a constant in this launch cannot change in a loop;
* `max` and `min` of blocks, and `and`, `or` and `not`, work element by element.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable, Iterator
from typing import TypeGuard

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

PREFIX = "__kernel_"  # of names that the rewritten kernel calls; a lab file has no name with two underscores
TYPES = {tl.int32: np.int32, tl.int64: np.int64}


def read_kernels_as_the_compiler_does() -> None:
    """Let the interpreter rewrite kernels with these meanings."""
    # The interpreter puts its names into the globals of each kernel, unless the file has one of them.
    for function in (values_of, builtin_of, logical, negated, changeable):
        setattr(interpreter, PREFIX + function.__name__, function)
    interpreter.FunctionRewriter.ast_transformer = Rewriter()


class Rewriter(interpreter.ASTTransformer):
    """Rewrites the syntax tree of a kernel before it is run."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:  # noqa: N802 - ast's name
        """Look at the parameters before each loop that assigns to them."""
        parameters = {one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        _Loops(parameters).visit(node)
        self.generic_visit(node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:  # noqa: N802 - ast's name
        """Take `x += y` as `x = x + y`."""
        if not isinstance(node.target, ast.Name):
            self.generic_visit(node)
            return node
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:  # noqa: N802 - ast's name
        """Make what is assigned a value of the kernel."""
        if len(node.targets) > 1:
            raise ValueError("a kernel assigns one value in a statement, not a = b = value")
        self.generic_visit(node)
        node.value = _call(values_of, node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:  # noqa: N802 - ast's name
        """Give Python's own range, max and min their meaning in a kernel."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id):
            node.func = _call(builtin_of, node.func)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:  # noqa: N802 - ast's name
        """Compute `and` and `or` of blocks; of numbers they stay Python's."""
        self.generic_visit(node)
        if any(isinstance(one, ast.NamedExpr) for one in ast.walk(node)):
            return node  # a name that is bound within a lambda is not bound outside
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        method = ast.Constant("logical_and" if isinstance(node.op, ast.And) else "logical_or")
        first, *others = node.values
        rest = [ast.Lambda(nothing, one) for one in others]
        return ast.copy_location(_call(logical, method, first, *rest), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:  # noqa: N802 - ast's name
        """Compute `not` of a block."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(_call(negated, node.operand), node)


class _Loops(ast.NodeTransformer):
    """Puts a call of `changeable` before each loop that assigns to parameters."""

    def __init__(self, parameters: set[str]):
        self._parameters = parameters

    def visit_While(self, node: ast.While | ast.For) -> ast.stmt | list[ast.stmt]:
        """Check what the loop changes."""
        self.generic_visit(node)
        names = {one.id for part in node.body for one in ast.walk(part) if _is_assigned(one)}
        check = [
            ast.copy_location(
                ast.Expr(_call(changeable, ast.Constant(name), ast.Name(name, ast.Load()))), node
            )
            for name in sorted(names & self._parameters)
        ]
        return [*check, node]

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        """Check what the loop changes, unless the compiler unrolls it."""
        called = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
        if getattr(called, "attr", getattr(called, "id", "")) == "static_range":
            self.generic_visit(node)
            return node
        return self.visit_While(node)


def _is_assigned(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _call(function: Callable[..., object], *values: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(PREFIX + function.__name__, ast.Load()), list(values), [])


def values_of(value: object) -> object:
    """Return a number as a value of the kernel, and a tuple with such values; others as they are."""
    if type(value) is tuple:
        return tuple(map(values_of, value))
    return interpreter.interpreter_semantic.to_tensor(value, False)


def changeable(name: str, value: object) -> None:
    """Raise TypeError if a loop assigns to a constant, of which the compiler demands that it stay one."""
    if isinstance(value, int | float | tl.constexpr):
        raise TypeError(f"Loop carried variable {name} changed type: it is the constant {value} here")


def builtin_of(function: Callable[..., object]) -> Callable[..., object]:
    """Return what a function of Python means in a kernel; a file may have its own by that name."""
    return IN_A_KERNEL.get(function, function) if callable(function) else function


def kernel_range(
    first: object, end: object = None, step: object = None, *_: object, **__: object
) -> Iterator[tl.tensor]:
    """Yield the values of range or tl.range in int32, or in int64 if a bound needs it."""
    start, stop = (0, first) if end is None else (first, end)
    bounds = [interpreter.interpreter_semantic.to_tensor(one) for one in (start, stop, step or 1)]
    kind = tl.int64 if any(one.dtype.primitive_bitwidth == 64 for one in bounds) else tl.int32
    numbers = (one.handle.data.item() for one in bounds)
    for value in range(*numbers):
        yield tl.tensor(TensorHandle(np.array([value], dtype=TYPES[kind]), kind), kind)


def _extreme(name: str, plain: Callable[..., object]) -> Callable[..., object]:
    def extreme(*values: object, **options: object) -> object:
        if any(isinstance(value, tl.tensor) for value in values):
            # Looked up now: while a kernel runs, the module has what the interpreter put there.
            return functools.reduce(getattr(tl, name), values)
        return plain(*values, **options)

    return extreme


IN_A_KERNEL: dict[object, Callable[..., object]] = {
    range: kernel_range,
    max: _extreme("maximum", max),
    min: _extreme("minimum", min),
}


def logical(method: str, value: object, *rest: Callable[[], object]) -> object:
    """Return `value and ...` or `value or ...`; the rest of blocks is always computed, as on a GPU."""
    for other in rest:
        if _is_block(value):
            value = getattr(value, method)(other())
        elif bool(value) == (method == "logical_or"):
            return value
        else:
            value = other()
    return value


def negated(value: object) -> object:
    """Return `not value`, element by element for a block."""
    return value.__not__() if _is_block(value) else not value  # type: ignore[attr-defined]


def _is_block(value: object) -> bool:
    return isinstance(value, tl.tensor) and value.type.is_block()
