"""Edits that store in a second pass over a row what is made of a sum, to which the loop is still adding."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.source import Function, Source, called, names_in


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield an edit for each loop of a kernel that stores what depends on its own sums."""
    if not function.kernel:
        return
    for loop in (node for node in function.nodes if isinstance(node, ast.For) and not node.orelse):
        bound = _updates(function, loop)
        moved = _addresses(loop) & {_target(one) for one in bound}
        updates = [one for one in bound if _target(one) not in moved]
        names = {_target(one) for one in updates}
        begins = [_beginning(source, function, loop, name) for name in sorted(moved)]
        stores = [one for one in loop.body if isinstance(one, ast.Expr) and called(one.value) == "store"]
        late = [one for one in stores if _depends(one, loop, names)]
        if not late or None in begins:
            continue
        first = _without(source, loop, [*late])
        second = _without(source, loop, updates)
        text = f"\n{' ' * loop.col_offset}".join((first, *filter(None, begins), second))
        listed = " and ".join(f"`{name}`" for name in sorted(names))
        mistake = f"{quoted(source.text_of(late[0]))} stores in the loop that still changes {listed}"
        yield Edit(2, late[0].lineno, mistake, ((source.span(loop), text),))


def _updates(function: Function, loop: ast.For) -> list[ast.stmt]:
    """Return the statements of a loop that bind what was bound before it: sums, maxima."""
    before = {
        name.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Assign) and node.lineno < loop.lineno
        for target in node.targets
        for name in names_in(target)
    }
    return [one for one in loop.body if _target(one) in before]


def _target(statement: ast.stmt) -> str:
    match statement:
        case ast.AugAssign(ast.Name(name)) | ast.Assign([ast.Name(name)]):
            return name
    return ""


def _depends(store: ast.Expr, loop: ast.For, names: set[str]) -> bool:
    """Return whether what a statement stores is made of some names, also through others of the loop."""
    made = {one.id for one in names_in(store)}
    for statement in reversed([one for one in loop.body if one.lineno < store.lineno]):
        if _target(statement) in made - names:
            made |= {one.id for one in names_in(statement)}
    return bool(made & names)


def _addresses(loop: ast.For) -> set[str]:
    """Return the names in the addresses of a loop, some of which it may move on."""
    return {
        name.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Call) and called(node) in ("load", "store") and node.args
        for name in names_in(node.args[0])
    }


def _beginning(source: Source, function: Function, loop: ast.For, name: str) -> str | None:
    """Return the statement that binds a name before a loop; None if it is a parameter."""
    found = [
        node
        for node in function.nodes
        if isinstance(node, ast.Assign) and _target(node) == name and node.lineno < loop.lineno
    ]
    return source.text_of(max(found, key=lambda one: one.lineno)) if found else None


def _without(source: Source, loop: ast.For, statements: list[ast.stmt]) -> str:
    parts = [(source.span(one), "pass") for one in statements]
    return source.with_replaced(parts, within=source.span(loop))
