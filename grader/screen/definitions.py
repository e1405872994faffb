"""Rules for functions, classes and calls of a student's file; each yields what is not permitted."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from grader.screen import names
from grader.screen.scopes import MUTABLE, PYTHON_OWN, File, Scope
from grader.system.text import one_line

CONFIG_POSITIONS = 5  # of triton.Config, before pre_hook


def text(node: ast.AST) -> str:
    """An expression as a message quotes it."""
    found = one_line(ast.unparse(node))
    return f"`{found}`" if len(found) <= 60 else f"`{found[:57]}...`"


def of_function(file: File, optional: Collection[str], node: ast.FunctionDef, scope: Scope) -> Iterator[str]:
    """Its name, its decorators and its default values; `optional` are names that the lab permits beyond all
    others.
    """
    method = isinstance(scope.node, ast.ClassDef)
    if node.name in PYTHON_OWN - names.BUILTINS and not scope.is_function and not method:
        yield f"`{node.name}` is a name of Python's own; choose another for the function"
    if node.name in scope.imports:
        yield f"`{node.name}` is imported, and a second meaning is not permitted; choose another name"
    for decorator, full in zip(node.decorator_list, file.decorators(node), strict=True):
        static = method and isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        operator = full == "torch.library.triton_op" and full in optional
        if full not in names.DECORATORS and not static and not operator:
            words = f"`@{text(decorator)[1:]}"
            yield f"the decorator {words} is not permitted; triton.jit, autotune and heuristics are"
    yield from of_defaults(file, node)


def of_defaults(file: File, node: ast.FunctionDef | ast.Lambda) -> Iterator[str]:
    """Default values, which live as long as the function."""
    for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
        if not all(_constant(file, part) for part in ast.walk(default)):
            yield f"the default value {text(default)} lives on between calls; write a constant, or None"


def _constant(file: File, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        full = file.dotted(node.func) or ""
        return full == "torch.device" or full.startswith("triton.language.")
    return not isinstance(node, (*MUTABLE, ast.GeneratorExp, ast.NamedExpr))


def of_class(file: File, node: ast.ClassDef) -> Iterator[str]:
    """Bases, decorators and what stands in the class."""
    autograd = [file.dotted(base) for base in node.bases] == ["torch.autograd.Function"]
    autograd = autograd and not node.decorator_list
    constants = not node.bases and len(node.decorator_list) == 1 and _freezes(file, node.decorator_list[0])
    if not (constants or autograd) or node.keywords:
        yield f"class {node.name} is not permitted; only torch.autograd.Function and frozen dataclasses are"
    kind, holds = (
        (ast.FunctionDef, "functions") if autograd else (ast.AnnAssign, "constants with their types")
    )
    for part in node.body:
        docstring = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
        if not docstring and not isinstance(part, (ast.Pass, kind)):
            yield f"{text(part)} in class {node.name} is not permitted; it holds {holds}"
        value = part.value if isinstance(part, ast.AnnAssign) else None
        if value and not all(_constant(file, one) for one in ast.walk(value)):
            yield f"{text(value)} in class {node.name} lives on between calls; write a constant"


def _freezes(file: File, decorator: ast.expr) -> bool:
    if not isinstance(decorator, ast.Call) or file.dotted(decorator.func) != "dataclasses.dataclass":
        return False
    frozen = [one.value for one in decorator.keywords if one.arg == "frozen"]
    return len(frozen) == 1 and isinstance(frozen[0], ast.Constant) and frozen[0].value is True


def of_call(file: File, parameters: set[str], node: ast.Call, scope: Scope) -> Iterator[str]:
    """Arguments of the autotuner, of launches, and hooks; `parameters` are those of the file's kernels."""
    full = file.dotted(node.func)
    given = [keyword.arg for keyword in node.keywords]
    if full in names.KEYWORDS:
        for name in given:
            if name not in names.KEYWORDS[full] and (name or full != "triton.Config"):
                yield f"`{name or '**'}` is not permitted in {full}; see labs/README.md"
        if len(node.args) > CONFIG_POSITIONS:
            yield f"so many arguments of {full} without their names are not permitted; name them"
    if isinstance(node.func, ast.Subscript) and not scope.kernel:
        for name in given:
            if name and name not in parameters | names.LAUNCH:
                yield f"`{name}=` in a launch is not permitted; it is no parameter of a kernel of this file"
    own = [function for function in file.functions_named(node.func) if isinstance(function, ast.FunctionDef)]
    if not scope.kernel and any(file.scopes[function.body[0]].kernel for function in own):
        name = text(node.func).strip("`")
        yield f"`{name}(...)` calls a kernel without a grid; write `{name}[grid](...)`"
    for keyword in node.keywords:
        if keyword.arg == "pre_hook" and not _harmless_hook(file, keyword.value):
            yield "a pre_hook is permitted only where it sets a descriptor's block_shape and nothing else"


def _harmless_hook(file: File, value: ast.AST) -> bool:
    match value:
        case ast.Constant(None):
            return True
        case ast.Name("pre_hook") if file.scopes[value].find("pre_hook"):
            return True  # handed through by a function: what it is given is looked at where it is called
    functions = file.functions_named(value)
    return bool(functions) and all(
        isinstance(function, ast.FunctionDef) and all(map(_only_sets_block_shape, function.body))
        for function in functions
    )


def _only_sets_block_shape(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign([target]):
            return isinstance(target, ast.Name) or getattr(target, "attr", "") == "block_shape"
        case ast.If(_, body, orelse):
            return all(map(_only_sets_block_shape, [*body, *orelse]))
        case ast.Return(None | ast.Constant(None)) | ast.Pass() | ast.Expr(ast.Constant()):
            return True
    return False
