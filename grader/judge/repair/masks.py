"""Edits of masks: a condition that another access has, and the whole address in place of its start."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.source import Function, Source, called, names_in

MOST_CONDITIONS = 6  # of other accesses, for one


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield, for each mask of a kernel, edits that join another condition to it."""
    if not function.kernel:
        return
    definitions: dict[str, list[ast.expr]] = {}
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], value):
                definitions.setdefault(name, []).append(value)
    masked = [
        (node, mask)
        for node in function.nodes
        if isinstance(node, ast.Call) and called(node) in ("load", "store") and (mask := _mask(node))
    ]
    known = {
        source.text_of(condition): (condition, node.lineno)
        for node, mask in masked
        for condition in _conditions(mask, definitions)
    }
    bound = _bound(function)
    for node, mask in masked:
        own = [source.text_of(one) for one in _conditions(mask, definitions)]
        others = [
            (text, line)
            for text, (condition, line) in known.items()
            if text not in own and all(bound.get(one.id, 0) < node.lineno for one in names_in(condition))
        ]
        code = source.text_of(mask)
        for text, line in others[:MOST_CONDITIONS]:
            access = quoted(source.text_of(node))
            mistake = f"the mask of {access} lacks `{text}`, which that of line {line} has"
            yield Edit.of_node(source, 1, mask, f"(({code}) & ({text}))", mistake)
        yield from _of_the_address(source, node, mask, definitions)
        yield from _of_another_index(source, function, node, mask, definitions)


def _of_the_address(
    source: Source, node: ast.Call, mask: ast.expr, definitions: Mapping[str, list[ast.expr]]
) -> Iterator[Edit]:
    """Compare the whole offset of an access, `offs + BLOCK`, where its mask compares a part of it, `offs`."""
    match node.args[:1]:
        case [ast.BinOp(ast.BinOp(_, ast.Add(), first), ast.Add(), more)]:
            pass
        case _:
            return
    for condition in _conditions(mask, definitions):
        match condition:
            case ast.Compare(left, [ast.Lt()], [end]) if ast.dump(left) in (ast.dump(first), ast.dump(more)):
                offset = f"{source.text_of(first)} + {source.text_of(more)}"
                words = f"{quoted(source.text_of(node))} is masked by `{source.text_of(left)}`"
                mistake = f"{words}, and not by `{offset}`"
                whole = f"(({offset}) < ({source.text_of(end)}))"
                text = f"(({source.text_of(mask)}) & {whole})"
                yield Edit.of_node(source, 1, mask, text, mistake)


def _of_another_index(
    source: Source,
    function: Function,
    node: ast.Call,
    mask: ast.expr,
    definitions: Mapping[str, list[ast.expr]],
) -> Iterator[Edit]:
    """Compare the index that the address has, where the mask compares one that the address does not have."""
    conditions, address = _conditions(mask, definitions), {one.id for one in names_in(node.args[0])}
    for at, condition in enumerate(conditions):
        match condition:
            case ast.Compare(ast.Name(compared) as left, [ast.Lt()], [end]) if compared not in address:
                ends = {one.id for one in names_in(end)}
            case _:
                continue
        for other in sorted(address & {*function.stored} - ends - {compared}):
            texts = [f"({source.text_of(one)})" for one in conditions]
            texts[at] = f"({other}{source.between(source.span(left)[1], source.span(condition)[1])})"
            access = quoted(source.text_of(node))
            mistake = f"the mask of {access} compares `{compared}`, and its address has `{other}`"
            yield Edit.of_node(source, 0, mask, f"({' & '.join(texts)})", mistake)


def _mask(node: ast.Call) -> ast.expr | None:
    named = [one.value for one in node.keywords if one.arg == "mask"]
    place = 1 if called(node) == "load" else 2
    return next(iter((*named, *node.args[place : place + 1])), None)


def _conditions(mask: ast.expr, definitions: Mapping[str, list[ast.expr]]) -> list[ast.expr]:
    """Return the conditions that a mask joins, also behind a name that has one value."""
    match mask:
        case ast.BinOp(left, ast.BitAnd(), right):
            return [*_conditions(left, definitions), *_conditions(right, definitions)]
        case ast.Name(name) if len({ast.dump(one) for one in definitions.get(name, ())}) == 1:
            # A mask may be made of itself: it is followed once.
            others = {each: values for each, values in definitions.items() if each != name}
            return _conditions(definitions[name][0], others)
    return [mask]


def _bound(function: Function) -> dict[str, int]:
    """Return the first line that binds each name; parameters are left out."""
    found: dict[str, int] = {}
    for node in function.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = min(node.lineno, found.get(node.id, node.lineno))
    return found
