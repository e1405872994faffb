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
        updates = _updates(function, loop)
        names = {_target(one) for one in updates}
        stores = [one for one in loop.body if isinstance(one, ast.Expr) and called(one.value) == "store"]
        late = [one for one in stores if _depends(one, loop, names)]
        if not late or _are_addresses(names, loop):
            continue
        first = _without(source, loop, [*late])
        second = _without(source, loop, updates)
        text = f"{first}\n{' ' * loop.col_offset}{second}"
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


def _are_addresses(names: set[str], loop: ast.For) -> bool:
    """Return whether a loop moves pointers, which a second pass would have to set back."""
    return any(
        called(node) in ("load", "store") and isinstance(node, ast.Call) and node.args
        and names & {one.id for one in names_in(node.args[0])}
        for node in ast.walk(loop)
    )  # fmt: skip


def _without(source: Source, loop: ast.For, statements: list[ast.stmt]) -> str:
    parts = [(source.span(one), "pass") for one in statements]
    return source.with_replaced(parts, within=source.span(loop))
