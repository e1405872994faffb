"""Edits made of code that stands elsewhere in the file: what is right in one place is often lost in another.

That a mistake can be mended by code of the same file is the idea of search-based program repair (Le Goues et
al., GenProg, 2012).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.kinds import Kind, kinds_of
from grader.judge.repair.source import Function, Source, called, names_in, stored

REDUCTIONS = {"sum", "max", "min"}
MOST_CASTS = 4  # and names, through which a value is followed
SIZES = {Kind.SIZE, Kind.CONSTANT}


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit of a kernel that uses a value, a definition or a size of it in another place."""
    if not function.kernel:
        return
    kinds = kinds_of(function)
    definitions = _definitions(function)
    yield from _loads_of_an_unused_pointer(source, function, kinds)
    yield from _rounded_as_stored(source, function)
    yield from _values_of_one_name(source, definitions)
    yield from _parts_of_definitions(source, function, definitions)
    yield from _updates_of_one_name(source, function, definitions)
    yield from _value_of_before(source, function, definitions)
    yield from _factor_as_elsewhere(source, function)
    yield from _vector_as_elsewhere(source, function)
    yield from _sum_as_elsewhere(source, function)
    single = {name: found[0] for name, found in definitions.items() if len(found) == 1}
    sizes = [name for name in function.parameters if kinds.get(name) is Kind.SIZE]
    for node in function.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in single:
            yield from _definition_with_another_name(source, function, node, single[node.id].value, kinds)
        elif isinstance(node, ast.BinOp):
            yield from _in_two_steps(source, node, definitions)
            yield from _size_for_a_product(source, node, sizes, kinds)
            yield from _factor_of_a_dot(source, node)
            if isinstance(node.op, ast.Add | ast.Sub):
                for term in (node.left, node.right):
                    if kinds.get(source.text_of(term)) is Kind.VALUE or isinstance(term, ast.BinOp):
                        yield from _load_as_a_factor(source, function, term)
        if isinstance(node, ast.Call) and called(node) == "where":
            yield from _as_in_the_choice(source, node)
        if isinstance(node, ast.Call) and called(node) in REDUCTIONS:
            yield from _axis(source, node)
            if called(node) == "sum" and node.args:
                yield from _load_as_a_factor(source, function, node.args[0])


def _rounded_as_stored(source: Source, function: Function) -> Iterator[Edit]:
    """Go on with what a store has rounded to the dtype of its tensor, and not with the fp32 number."""
    for call in function.nodes:
        kept = stored(source, call)
        while isinstance(kept, ast.Call) and called(kept) == "to" and isinstance(kept.func, ast.Attribute):
            kept = kept.func.value
        match call, kept:
            case ast.Call(args=[address, *_]), ast.Name(name):
                pointers = [one.id for one in names_in(address) if one.id.endswith(("ptr", "row", "rows"))]
            case _:
                continue
        own = {id(one) for one in ast.walk(call)}
        for node in function.nodes:
            if pointers and isinstance(node, ast.Name) and _is_read_as(node, name) and id(node) not in own:
                mistake = f"`{name}` is used before it is rounded, as line {call.lineno} stores it"
                text = f"({name}.to({pointers[0]}.dtype.element_ty).to(tl.float32))"
                yield Edit.of_node(source, 1, node, text, mistake)


def _sum_as_elsewhere(source: Source, function: Function) -> Iterator[Edit]:
    """Pass a sum, as another call does, where a call passes one of its terms: `cols` for `cols + BLOCK`."""
    passed = [
        (call, one)
        for call in function.nodes
        if isinstance(call, ast.Call)
        for one in (*call.args, *(named.value for named in call.keywords))
    ]
    sums = [
        (one, call.lineno)
        for call, one in passed
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add)
    ]
    for call, one in passed:
        if not isinstance(one, ast.Name) or called(call) not in source.functions:
            continue
        for whole, line in sums:
            if one.id in (source.text_of(whole.left), source.text_of(whole.right)):
                words = f"{quoted(source.text_of(call))} takes `{one.id}`"
                mistake = f"{words}, and not {quoted(source.text_of(whole))}, as line {line} does"
                yield Edit.of_node(source, 2, one, f"({source.text_of(whole)})", mistake)


def _in_two_steps(
    source: Source, node: ast.BinOp, definitions: Mapping[str, Sequence[ast.Assign]]
) -> Iterator[Edit]:
    """Subtract the terms of a sum one after the other: the sum is rounded, and what is left is small."""
    match node:
        case ast.BinOp(left, ast.Sub(), ast.Name(name)) if len(definitions.get(name, ())) == 1:
            total = definitions[name][0].value
        case ast.BinOp(left, ast.Sub(), ast.BinOp() as total):
            name = source.text_of(total)
        case _:
            return
    match total:
        case ast.BinOp(one, ast.Add(), other):
            first, second = source.text_of(one), source.text_of(other)
            mistake = f"`{name}` is rounded before it is subtracted in {quoted(source.text_of(node))}"
            text = f"(({source.text_of(left)}) - ({first}) - ({second}))"
            yield Edit.of_node(source, 1, node, text, mistake)


def _definitions(function: Function) -> dict[str, list[ast.Assign]]:
    """Return the assignments to each name, in the order of the text."""
    found: dict[str, list[ast.Assign]] = {}
    for node in ast.walk(function.node):
        match node:
            case ast.Assign([ast.Name(name)], _):
                found.setdefault(name, []).append(node)
    return {name: sorted(some, key=lambda one: one.lineno) for name, some in found.items()}


def _values_of_one_name(source: Source, definitions: dict[str, list[ast.Assign]]) -> Iterator[Edit]:
    """Give a name the value that it gets elsewhere, such as in another loop over the same columns."""
    for name, found in definitions.items():
        for one in found:
            for other in found:
                here, there = source.text_of(one.value), source.text_of(other.value)
                if here != there and not isinstance(other.value, ast.Constant):
                    code, line = quoted(source.text_of(one)), other.lineno
                    mistake = _unlike(source, one.value, other.value, f"in {code}", line)
                    reads, before = ({n.id for n in names_in(each.value)} for each in (one, other))
                    if name in reads and name not in before and line < one.lineno:
                        mistake = f"{code} does not belong there"  # without it the earlier value stays
                    mistake = mistake or f"`{name}` has another value in {code} than in line {line}"
                    yield Edit.of_node(source, 1, one.value, there, mistake)


def _updates_of_one_name(
    source: Source, function: Function, definitions: dict[str, list[ast.Assign]]
) -> Iterator[Edit]:
    """Update a name as it is updated elsewhere, such as in another loop over the same columns."""
    for node in function.nodes:
        match node:
            case ast.AugAssign(ast.Name(name)):
                others = [
                    one for one in definitions.get(name, ()) if name in {n.id for n in names_in(one.value)}
                ]
            case _:
                continue
        for other in others:
            code = quoted(source.text_of(node))
            mistake = f"{code} is not as in line {other.lineno}"
            if isinstance(other.value, ast.BinOp) and _is_scaled(other.value, name):
                mistake = (
                    f"what `{name}` was before is not rescaled in {code}, as it is in line {other.lineno}"
                )
            yield Edit.of_node(source, 1, node, source.text_of(other), mistake)


def _value_of_before(
    source: Source, function: Function, definitions: dict[str, list[ast.Assign]]
) -> Iterator[Edit]:
    """Compute a name anew where it is read after what it was made of has changed, as in Welford's sums."""
    bound = [one for one in names_in(function.node) if isinstance(one.ctx, ast.Store)]
    for name, found in definitions.items():
        if len(found) != 1 or not isinstance(found[0].value, ast.BinOp):
            continue
        made, of = found[0].lineno, {one.id for one in names_in(found[0].value)} - {name}
        for node in function.nodes:
            if not isinstance(node, ast.Name) or not _is_read_as(node, name):
                continue
            changed = [one for one in bound if one.id in of and made < one.lineno < node.lineno]
            if changed:
                what, line = changed[0].id, changed[0].lineno
                mistake = f"`{name}` is read after line {line} has changed `{what}`, of which it was made"
                yield Edit.of_node(source, 1, node, f"({source.text_of(found[0].value)})", mistake)


def _is_scaled(value: ast.BinOp, name: str) -> bool:
    """Return whether a sum has a name with a factor."""
    terms = [value.left, value.right] if isinstance(value.op, ast.Add) else [value]
    return any(
        isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult) and name in {n.id for n in names_in(one)}
        for one in terms
    )


def _parts_of_definitions(
    source: Source, function: Function, definitions: dict[str, list[ast.Assign]]
) -> Iterator[Edit]:
    """Exchange what has a name, such as a product, and one of its two parts, behind the definition."""
    around = {id(inner): node for node in function.nodes for inner in ast.iter_child_nodes(node)}
    for name, every in definitions.items():
        found = [one for one in every if not _is_cast_of(one.value, name)]
        for one, after in zip_longest(found, found[1:]):
            value = _uncast(one.value, definitions)
            for part, lacks, has in _parts(source, value, names=value is not one.value):
                for node in function.nodes:
                    if not isinstance(node, ast.expr) or node.lineno <= one.lineno:
                        continue
                    if after and node.lineno >= after.lineno:
                        continue
                    if _same([node], [part]):
                        mistake = f"{lacks} in {quoted(source.text_of(node))}"
                        yield Edit.of_node(source, 1, node, name, mistake)
                    elif _is_read_as(node, name):
                        whole = around.get(id(node))
                        code = source.text_of(whole) if isinstance(whole, ast.expr | ast.stmt) else name
                        mistake = f"`{name}` {has}, which does not belong in {quoted(code)}"
                        yield Edit.of_node(source, 1, node, f"({source.text_of(part)})", mistake)


def _is_cast_of(value: ast.expr, name: str) -> bool:
    """Return whether a value is a name in another dtype, as of `x.to(tl.float16).to(tl.float32)`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "to":
        value = value.func.value
        if isinstance(value, ast.Name) and value.id == name:
            return True
    return False


def _uncast(value: ast.expr, definitions: Mapping[str, Sequence[ast.Assign]]) -> ast.expr:
    """Return what a value is a conversion of, also where that has a name of its own."""
    for _ in range(MOST_CASTS):
        match value:
            case ast.Call(ast.Attribute(inner, "to")):
                value = inner
            case ast.Name(name) if len(definitions.get(name, ())) == 1:
                value = definitions[name][0].value
            case _:
                break
    return value


def _parts(source: Source, value: ast.expr, names: bool) -> Iterator[tuple[ast.expr, str, str]]:
    """Give the parts of a value, and what is wrong where one stands for the value, or the value for it.

    Without `names`: where they stand in place of names are edits of another kind.
    """
    if not isinstance(value, ast.BinOp):
        return
    pairs = [(value.left, value.right)]
    if isinstance(value.op, ast.Mult | ast.Add):
        pairs.append((value.right, value.left))
    for part, other in pairs:
        if isinstance(part, ast.Constant) or (isinstance(part, ast.Name) and not names):
            continue
        told = quoted(source.text_of(other))
        match value.op:
            case ast.Mult():
                yield part, f"the factor {told} is missing", f"has the factor {told}"
            case ast.Add():
                yield part, f"{told} is not added", f"has the term {told}"
            case ast.Sub():
                yield part, f"{told} is not subtracted", f"has {told} subtracted"
            case ast.Div():
                yield part, f"no division by {told}", f"is divided by {told}"


def _is_read_as(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _unlike(source: Source, one: ast.expr, other: ast.expr, where: str, line: int) -> str:
    """Say in which part alone two calls of a function differ; "" if there is no such part."""
    match one, other:
        case _, ast.Call(ast.Attribute(value, "to")) if ast.dump(value) == ast.dump(one):
            return f"the value {where} is not converted to another type, as it is in line {line}"
        case ast.Call(ast.Attribute(a, "to")), ast.Call(ast.Attribute(b, "to")) if _same(
            one.args, other.args
        ):
            return _unlike(source, a, b, where, line)
        case ast.Call(), ast.Call() if _same([one.func], [other.func]):
            mine, others = _arguments(one), _arguments(other)
            alike = {key for key in mine.keys() & others.keys() if _same([mine[key]], [others[key]])}
            unlike = [key for key in {**others, **mine} if key not in alike]
            if len(unlike) == 1 and unlike[0] in mine:
                return f"{quoted(source.text_of(mine[unlike[0]]))} {where} is not as in line {line}"
            if len(unlike) == 1:
                name = f"`{unlike[0]}`" if isinstance(unlike[0], str) else "an argument"
                return f"{name} is missing {where}, and line {line} has it"
    return ""


def _arguments(call: ast.Call) -> dict[int | str | None, ast.expr | ast.keyword]:
    """Return the arguments of a call by their position or name."""
    return {**dict(enumerate(call.args)), **{one.arg: one for one in call.keywords}}


def _same(some: Sequence[ast.AST], others: Sequence[ast.AST]) -> bool:
    return [*map(ast.dump, some)] == [*map(ast.dump, others)]


def _loads_of_an_unused_pointer(source: Source, function: Function, kinds: dict[str, Kind]) -> Iterator[Edit]:
    """Multiply by, or add, what a parameter points to that the kernel does not use, loaded as others are."""
    for pointer in (name for name in function.unused if kinds.get(name) is Kind.POINTER):
        texts = [
            *_loads_like_others(source, function, pointer, kinds),
            *_loads_of_a_vector(function, pointer),
        ]
        for node in function.nodes:
            if not isinstance(node, ast.Assign | ast.AugAssign):
                continue
            code, own = source.text_of(node.value), {*ast.walk(node)}
            mistake = f"the argument `{pointer}` is not used, and is missing in {quoted(code)}"
            for text, of in texts:
                for sign in "*+" if of not in own else "":
                    yield Edit.of_node(source, 1, node.value, f"(({code}) {sign} {text})", mistake)


def _loads_like_others(
    source: Source, function: Function, pointer: str, kinds: dict[str, Kind]
) -> Iterator[tuple[str, ast.AST | None]]:
    """Give a load of a pointer for each load of another parameter, and that one."""
    for load in (node for node in function.nodes if called(node) == "load"):
        inner = next((one for one in names_in(load) if kinds.get(one.id) is Kind.POINTER), None)
        if inner is None or inner.id not in function.parameters:
            continue
        begin, (start, stop) = source.span(load)[0], source.span(inner)
        text = source.text_of(load).encode()
        yield (text[: start - begin] + pointer.encode() + text[stop - begin :]).decode(), load


def _loads_of_a_vector(function: Function, pointer: str) -> Iterator[tuple[str, ast.AST | None]]:
    """Give a load of one element for each index that the kernel compares with a size."""
    pairs = dict.fromkeys(
        (node.left.id, node.comparators[0].id)
        for node in function.nodes
        if isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Lt)
        and isinstance(node.left, ast.Name)
        and isinstance(node.comparators[0], ast.Name)
    )
    for index, size in pairs:
        yield f"tl.load({pointer} + {index}, mask={index} < {size}, other=0.0)", None


def _definition_with_another_name(
    source: Source, function: Function, node: ast.Name, value: ast.expr, kinds: dict[str, Kind]
) -> Iterator[Edit]:
    """Put in place of a name what it stands for, but of another stride or size: a step of another tensor."""
    if kinds.get(node.id) not in (Kind.INDEX, Kind.STRIDE, Kind.SIZE) or isinstance(value, ast.Call):
        return
    begin = source.span(value)[0]
    text = source.text_of(value).encode()
    for inner in names_in(value):
        kind = kinds.get(inner.id)
        if kind not in (Kind.STRIDE, Kind.SIZE):
            continue
        for other in (name for name, its in kinds.items() if its is kind and name != inner.id):
            start, stop = (place - begin for place in source.span(inner))
            changed = (text[:start] + other.encode() + text[stop:]).decode()
            mistake = f"`{node.id}` is made from `{inner.id}`, which is another tensor's or axis'"
            rank = 0 if other in function.unused else 2
            yield Edit.of_node(source, rank, node, f"({changed})", mistake)


def _size_for_a_product(
    source: Source, node: ast.BinOp, sizes: list[str], kinds: dict[str, Kind]
) -> Iterator[Edit]:
    """Put a size in place of arithmetic with sizes and constants, such as the lanes of all tiles of a row."""
    names = [*names_in(node)]
    if names and all(kinds.get(one.id) in SIZES for one in names):
        for size in sizes:
            yield Edit.of_node(source, 2, node, size, f"{quoted(source.text_of(node))} is the wrong number")


def _factor_of_a_dot(source: Source, node: ast.BinOp) -> Iterator[Edit]:
    """Let a factor hold for what a product is added to alone: `tl.dot(p, v, acc) * f`."""
    if not isinstance(node.op, ast.Mult):
        return
    for product, factor in ((node.left, node.right), (node.right, node.left)):
        if isinstance(product, ast.Call) and called(product) == "dot":
            added = next((one.value for one in product.keywords if one.arg == "acc"), None)
            added = added or (product.args[2] if len(product.args) > 2 else None)
            if added is not None:
                begin, (start, stop) = source.span(product)[0], source.span(added)
                text = source.text_of(product).encode()
                inside = f"({source.text_of(added)}) * ({source.text_of(factor)})".encode()
                changed = (text[: start - begin] + inside + text[stop - begin :]).decode()
                whole = quoted(source.text_of(node))
                mistake = f"{quoted(source.text_of(factor))} multiplies the new product in {whole}, too"
                yield Edit.of_node(source, 1, node, changed, mistake)


def _load_as_a_factor(source: Source, function: Function, summed: ast.expr) -> Iterator[Edit]:
    """Multiply a term by what is loaded elsewhere in the kernel, and has no name."""
    own = {ast.dump(one) for one in ast.walk(summed)}
    named = {id(one.value) for one in function.nodes if isinstance(one, ast.Assign)}
    loads = [one for one in function.nodes if called(one) == "load" and id(one) not in named]
    for text in dict.fromkeys(source.text_of(one) for one in loads if ast.dump(one) not in own):
        mistake = f"the factor {quoted(text)} is missing in {quoted(source.text_of(summed))}"
        yield Edit.of_node(source, 2, summed, f"(({source.text_of(summed)}) * {text})", mistake)


def _factor_as_elsewhere(source: Source, function: Function) -> Iterator[Edit]:
    """Multiply a name by what it is multiplied by elsewhere in the kernel, such as a gradient by a weight."""
    products = [
        node for node in function.nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    ]
    of: dict[str, dict[str, ast.BinOp]] = {}
    within: dict[int, set[str]] = {}  # by a name's node, all that is in a product with it
    for product in products:
        inside = [*ast.walk(product)]
        texts = {source.text_of(one) for one in inside if isinstance(one, ast.expr)}
        for one in inside:
            within.setdefault(id(one), set()).update(texts)
        for mine, other in ((product.left, product.right), (product.right, product.left)):
            if isinstance(mine, ast.Name) and (isinstance(other, ast.Name) or called(other) == "load"):
                of.setdefault(mine.id, {}).setdefault(source.text_of(other), product)
    for node in function.nodes:
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            continue
        for factor, there in of.get(node.id, {}).items():
            if factor not in within.get(id(node), ()) and (id(node) not in within or "(" in factor):
                mistake = (
                    f"the factor {quoted(factor)} is missing at `{node.id}`, which line {there.lineno} has"
                )
                yield Edit.of_node(source, 1, node, f"({node.id} * {factor})", mistake)


def _vector_as_elsewhere(source: Source, function: Function) -> Iterator[Edit]:
    """Multiply what a loop adds by a vector that another loop loads, in the columns that this one loads."""
    loads = {id(one): _pointed_to(one) for one in function.nodes if isinstance(one, ast.Call)}
    vectors = {name.id for name in loads.values() if name and name.id in function.parameters}
    for loop in (one for one in function.nodes if isinstance(one, ast.For | ast.While)):
        mine = [(one, name) for one in ast.walk(loop) if (name := loads.get(id(one)))]
        if not mine:
            continue
        last, pointer = mine[-1]
        assert isinstance(last, ast.expr)
        used = {name.id for _, name in mine}
        for node in ast.walk(loop):
            match node:
                case ast.AugAssign(_, ast.Add(), ast.Call(args=[value, *_]) as call) if called(call) == "sum":
                    added = value
                case ast.AugAssign(_, ast.Add(), value):
                    added = value
                case _:
                    continue
            for vector in sorted(vectors - used):
                text = source.with_replaced([(source.span(pointer), vector)], within=source.span(last))
                mistake = f"the factor {quoted(text)} is missing in {quoted(source.text_of(added))}"
                yield Edit.of_node(source, 1, added, f"(({source.text_of(added)}) * {text})", mistake)


def _pointed_to(node: ast.Call) -> ast.Name | None:
    """Return the name of the pointer that a call loads from: `load(p, ...)`, `tl.load(p + ...)`."""
    first = node.args[0] if node.args and "load" in called(node) else None
    while isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add):
        first = first.left
    return first if isinstance(first, ast.Name) else None


def _as_in_the_choice(source: Source, node: ast.Call) -> Iterator[Edit]:
    """Let a condition look at the value that it decides on, and not at a part of that."""
    if len(node.args) != 3:
        return
    condition, *values = node.args
    for value in values:
        inside = {one.id for one in names_in(value)}
        for name in names_in(condition):
            if isinstance(value, ast.BinOp) and name.id in inside:
                chosen = quoted(source.text_of(value))
                mistake = f"{quoted(source.text_of(node))} asks `{name.id}`, and chooses {chosen}"
                yield Edit.of_node(source, 1, name, f"({source.text_of(value)})", mistake)
    for value, other in (values, values[::-1]):
        match other:
            case ast.BinOp(_, ast.Div() | ast.Mult() as operator, factor) if not _same([value], [other]):
                sign, code = "/" if isinstance(operator, ast.Div) else "*", source.text_of(factor)
                verb = "divided" if sign == "/" else "multiplied"
                mistake = (
                    f"{quoted(source.text_of(value))} is not {verb} by `{code}`, as what is chosen beside it"
                )
                yield Edit.of_node(source, 1, value, f"(({source.text_of(value)}) {sign} ({code}))", mistake)


def _axis(source: Source, node: ast.Call) -> Iterator[Edit]:
    """Reduce along one axis where all are reduced."""
    if len(node.args) != 1 or any(one.arg == "axis" for one in node.keywords):
        return
    text = source.text_of(node)[:-1].rstrip().rstrip(",")
    mistake = f"{quoted(source.text_of(node))} reduces all axes of its block"
    for axis in ("axis=1", "axis=0", "axis=1, keep_dims=True", "axis=0, keep_dims=True"):
        yield Edit.of_node(source, 1, node, f"{text}, {axis})", mistake)
