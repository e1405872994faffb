"""The forms of a lab file: which nodes it may consist of, and where."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from grader.screen import language
from grader.screen.scopes import MUTABLE, File
from grader.system.text import one_line

_WORD = re.compile(r"(?!__)[A-Za-z_]\w*", re.ASCII)
LAZY = frozenset({"zip", "enumerate", "reversed"})


def text(node: ast.AST) -> str:
    """An expression as a message quotes it."""
    found = one_line(ast.unparse(node))
    return f"`{found}`" if len(found) <= 60 else f"`{found[:57]}...`"


def misplaced(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, words and function of every node that is no form of the language."""
    waiting: list[tuple[ast.AST, int, str]] = [(node, 1, "<module>") for node in tree.body]
    while waiting:
        node, line, function = waiting.pop()
        line = getattr(node, "lineno", line)
        for words in _node(node, node in tree.body):
            yield line, words, function
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = node.name
        waiting += [(part, line, function) for part in ast.iter_child_nodes(node)]


def _node(node: ast.AST, top: bool) -> Iterator[str]:
    kind = type(node).__name__
    if kind not in language.NODES:
        instead = f"{kind} ({text(node)}) is not permitted; see the forms in labs/LANGUAGE.md"
        yield language.INSTEAD.get(kind, instead)
    for name in _identifiers(node):
        if name.startswith("__"):
            yield f"`{name}` is not permitted; names with two underscores belong to Python"
    match node:
        case ast.ClassDef() if not top:
            yield f"class {node.name} in a function is not permitted; define it at the top of the file"
        case ast.arg(annotation=wanted) | ast.AnnAssign(annotation=wanted) if wanted:
            yield from _annotation(wanted)
        case ast.FunctionDef(returns=wanted) if wanted:
            yield from _annotation(wanted)


def _annotation(wanted: ast.expr) -> Iterator[str]:
    if not plain_annotation(wanted):
        yield f"the annotation {text(wanted)} is not permitted; write a plain name such as torch.Tensor"


def plain_annotation(wanted: ast.AST) -> bool:
    """Whether an expression has the form of an annotation: names, and words in a Literal.

    PyTorch evaluates texts that it finds in annotations, those of a Literal too: so these are single words.
    """
    of_literals = {
        part
        for node in ast.walk(wanted)
        if is_literal(node)
        for part in getattr(node.slice, "elts", [node.slice])
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and _WORD.fullmatch(part.value)
    }
    return all(
        type(node).__name__ in language.ANNOTATION
        and (not isinstance(node, ast.Constant) or node.value in (None, ...) or node in of_literals)
        for node in ast.walk(wanted)
    )


def is_literal(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Whether an expression is spelled like `typing.Literal[...]`."""
    return isinstance(node, ast.Subscript) and getattr(node.value, "attr", getattr(node.value, "id", "")) == (
        "Literal"
    )


class Unquoted(ast.NodeTransformer):
    """Replaces annotations in quotes by what they say, so that every rule applies to that."""

    def __init__(self) -> None:
        self._inside = False

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace one node, and what lies below it."""
        match node:
            case ast.Constant(str(quoted)) if self._inside:
                return _meant(quoted, node)
            case ast.Subscript() if self._inside and is_literal(node):
                return node  # its words are no types
            case ast.FunctionDef(returns=wanted) if wanted:
                node.returns = self._read(wanted)
            case ast.arg(annotation=wanted) | ast.AnnAssign(annotation=wanted) if wanted:
                node.annotation = self._read(wanted)
        return self.generic_visit(node)

    def _read(self, annotation: ast.expr) -> ast.expr:
        self._inside = True
        meant = self.visit(annotation)
        self._inside = False
        return meant if isinstance(meant, ast.expr) else annotation


def _meant(quoted: str, node: ast.expr) -> ast.expr:
    """The expression that a text is the source of, in the text's place; the text where it is no code."""
    try:
        meant = ast.parse(quoted.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return node
    for part in ast.walk(meant):
        ast.copy_location(part, node)
    return meant


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Names that a node spells out."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [part for alias in node.names for part in (alias.asname or "", *alias.name.split("."))]
        module = getattr(node, "module", None) or ""
        yield from (*names, *(part for part in module.split(".") if module != "__future__"))
        return
    for field in ("id", "attr", "arg", "name"):
        found = getattr(node, field, None)
        if isinstance(found, str):
            yield found


def constant(file: File, value: ast.AST) -> bool:
    """Whether a value keeps no state between calls: constants and names, and dtypes and devices by a call."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            full = file.dotted(node.func) or ""
            if full != "torch.device" and not full.startswith("triton.language."):
                return False
        if isinstance(node, (*MUTABLE, ast.GeneratorExp, ast.NamedExpr, ast.Lambda)):
            return False
    return True


def of_class(file: File, node: ast.ClassDef) -> Iterator[tuple[ast.AST, str]]:
    """Base and contents: functions of an autograd function, or fields of a named tuple."""
    base = file.dotted(node.bases[0]) if len(node.bases) == 1 else None
    if base not in ("torch.autograd.Function", "typing.NamedTuple") or node.decorator_list or node.keywords:
        yield (
            node,
            f"class {node.name} is not permitted; only torch.autograd.Function and typing.NamedTuple are",
        )
        return
    autograd = base == "torch.autograd.Function"
    for part in node.body:
        match part:
            case ast.Pass() | ast.Expr(ast.Constant()):
                pass
            case ast.FunctionDef(decorator_list=[ast.Name("staticmethod"), *_]) if autograd:
                pass
            case ast.AnnAssign(ast.Name(field), value=value) if not autograd:
                # No object of Python, torch or Triton has attributes in capitals that reach further.
                if not (field.isupper() and len(field) > 1 and field.isascii()) or field.startswith("_"):
                    yield (
                        part,
                        f"the field {field} is not permitted; fields are two or more capitals, BLOCK_M",
                    )
                if value and not constant(file, value):
                    yield (
                        value,
                        f"{text(value)} in class {node.name} lives on between calls; write a constant",
                    )
            case _:
                holds = "functions with @staticmethod" if autograd else "constants with their types"
                yield part, f"{text(part)} in class {node.name} is not permitted; it holds {holds}"
