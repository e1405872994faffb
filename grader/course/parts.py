"""Which other files of a student a file imports, and which of their names; imports no torch."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.course.submission import Submission


@dataclass(frozen=True, eq=False)
class Part:
    """Another file of the same student, and the names that are imported from it."""

    submission: Submission
    names: frozenset[str]

    @property
    def module(self) -> str:
        """The name by which it is imported."""
        return self.submission.path.stem

    @property
    def functions(self) -> frozenset[str]:
        """The functions that it defines at module level."""
        body = self.submission.parsed.body
        return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef))

    @property
    def constants(self) -> frozenset[str]:
        """The numbers, texts and constexprs, and tuples of them, that it defines at module level."""
        found: set[str] = set()
        for node in self.submission.parsed.body:
            if isinstance(node, ast.Assign) and _is_constant(node.value):
                found |= {
                    one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)
                }
        return frozenset(found)


def parts_of(
    submission: Submission, files: Iterable[str], read: Callable[[Path], Submission]
) -> tuple[Part, ...]:
    """Return the files among `files` that a submission imports, directly or not, in the order of `files`.

    `files` are names of files beside the submission, each before those that import it; `read` reads one.
    """
    order = [Path(name).stem for name in files]
    wanted = {module: set(names) for module, names in _imports(submission.parsed, order).items()}
    found: dict[str, Submission] = {}
    for module in reversed(order):
        if module not in wanted:
            continue
        found[module] = read(submission.path.with_name(f"{module}.py"))
        for other, names in _imports(found[module].parsed, order[: order.index(module)]).items():
            wanted.setdefault(other, set()).update(names)
    return tuple(Part(found[module], frozenset(wanted[module])) for module in order if module in found)


def _is_constant(value: ast.expr) -> bool:
    match value:
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()):
            return True
        case ast.Tuple(parts):
            return all(map(_is_constant, parts))
        case ast.Call(ast.Attribute(ast.Name("tl" | "triton"), "constexpr"), [argument], []):
            return _is_constant(argument)
    return False


def _imports(tree: ast.Module, modules: Collection[str]) -> dict[str, set[str]]:
    """Return the names that a syntax tree takes from each of some modules."""
    found: dict[str, set[str]] = {}
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module in modules and not node.level:
            found.setdefault(node.module, set()).update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            aliases |= {one.asname or one.name: one.name for one in node.names if one.name in modules}
    for module in aliases.values():
        found.setdefault(module, set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            found[aliases[node.value.id]].add(node.attr)
    return found
