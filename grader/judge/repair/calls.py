"""Edits of calls: masks, axes, arguments of a launch, neighbouring functions, casts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations

from grader.judge.repair.edit import Edit, quoted, wrong_maximum
from grader.judge.repair.kinds import Kind, kinds_of
from grader.judge.repair.launched import kernel_of
from grader.judge.repair.source import Function, Source, called, names_in, stored

# Functions that are taken for each other.
ALIKE = (
    ("exp", "exp2", "log", "log2"),
    ("sqrt", "rsqrt"),
    ("sum", "max", "min"),
    ("maximum", "minimum"),
    ("zeros_like", "ones_like"),
    ("sigmoid", "exp"),
    ("xor_sum", "sum"),
    ("cumsum", "sum"),
    ("atomic_add", "store"),
)
# Functions that are taken for another one, which is hardly ever taken for them.
MISTAKEN = {"isqrt": "sqrt", "randn": "rand", "randn4x": "rand4x", "floor": "ceil", "ceil": "floor"}
OPPOSITES = ({"max", "min"}, {"maximum", "minimum"})
# Functions of which two arguments are easily exchanged.
EXCHANGED = ("dot", "where", "apply", "maximum", "fma", "swizzle2d")
LAUNCHING = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
BINARY = {"maximum", "minimum", "fdiv"}
CHECKED = ("(0, 1)", "(0,)", "(1,)")
UNARY = {"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "sigmoid", "floor", "ceil"}
REDUCTIONS = {"sum", "max", "min", "argmax", "argmin", "cumsum", "reduce"}
BUILT_IN = {"max", "min", "sum"}  # of Python, unless they are those of a module
ACCESSES = {"load", "store", "atomic_add"}
DIMENSIONS = {"size", "stride"}
SAME_TENSOR = {"contiguous", "detach", "clone", "to", "float", "half", "view", "reshape"}
SINGLE = "tl.float32"
TURNED = re.compile(r"\[\s*(:\s*,\s*None|None\s*,\s*:)\s*\]")


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit of one call of a function."""
    masks = _masks(source, function)
    kinds = kinds_of(function)
    for node in function.nodes:
        if isinstance(node, ast.Call):
            name = called(node)
            if function.kernel and name in ACCESSES and name not in source.given:
                yield from _of_an_access(source, node, masks, _conditions(source, function, node, kinds))
            yield from _of_a_name(source, node, name)
            yield from _of_a_result(source, node, name)
            yield from _of_a_join(source, node, name)
            yield from _of_a_stored_block(source, node, name)
            yield from _of_checked_axes(source, node)
            yield from _of_an_axis(source, node, name, function)
            if function.kernel:
                yield from _of_a_cast(source, node, name)
                yield from _of_a_helper(source, node, name)
            yield from _of_the_arguments(source, node, function)
            if function.kernel and name == "dot":
                yield from _of_a_precision(source, node)
            if function.kernel and name == "arange":
                yield from _of_lanes(source, node)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            if node.value.attr in ("shape", "strides") and isinstance(node.slice, ast.Constant):
                yield from _other_axis(source, node.slice, node)
        elif isinstance(node, ast.Subscript) and function.kernel:
            yield from _of_a_broadcast(source, node)


def _of_lanes(source: Source, node: ast.Call) -> Iterator[Edit]:
    """Count the lanes of a block from 0."""
    match node.args:
        case [ast.Constant(int() as first), last] if first:
            mistake = f"{quoted(source.text_of(node))} counts its lanes from {first}, and not from 0"
            text = f"tl.arange(0, ({source.text_of(last)}) - {first})"
            yield Edit.of_node(source, 0, node, text, mistake)


def _of_a_precision(source: Source, node: ast.Call) -> Iterator[Edit]:
    """Multiply all bits of fp32: a GPU takes those of TF32 unless the call says otherwise."""
    given = [one for one in node.keywords if one.arg in ("input_precision", "allow_tf32")]
    if any(isinstance(one.value, ast.Constant) and one.value.value in ("ieee", False) for one in given):
        return
    mistake = f"{quoted(source.text_of(node))} takes fp32 as TF32, and loses digits"
    if given:
        begin, end = source.span(given[0])
    else:
        begin = end = source.span(node)[1] - 1
    comma = "" if given or source.text_of(node)[:-1].rstrip().endswith(",") else ", "
    yield Edit(0, node.lineno, mistake, (((begin, end), f'{comma}input_precision="ieee"'),))


def _masks(source: Source, function: Function) -> list[str]:
    """Return the masks of the accesses in a function, each text once."""
    found = []
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call) and called(node) in ACCESSES:
            mask = _mask_of(node)
            if mask is not None:
                found += [source.text_of(mask), *_conditions_of(source, mask)]
    for name in function.stored:
        if "mask" in name or "valid" in name or "inside" in name:
            found.append(name)
    found += [_turned(text) for text in found if "None" in text]
    return list(dict.fromkeys(found))


def _conditions_of(source: Source, mask: ast.expr) -> list[str]:
    """Return the conditions that a mask joins by `&`."""
    if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd):
        return [*_conditions_of(source, mask.left), *_conditions_of(source, mask.right)]
    return [source.text_of(mask)]


def _turned(text: str) -> str:
    """Return a condition for the other axis of a block: `[:, None]` for `[None, :]`."""
    return TURNED.sub(lambda found: "[None, :]" if found[0].startswith("[:") else "[:, None]", text)


def _plain(condition: str) -> str:
    """Return a condition without blanks and the parentheses around it."""
    return "".join(condition.split()).strip("()")


def _mask_of(node: ast.Call) -> ast.expr | None:
    by_name = next((one.value for one in node.keywords if one.arg == "mask"), None)
    place = 1 if called(node) == "load" else 2
    if by_name is None and len(node.args) > place:
        return node.args[place]
    return by_name


def _conditions(source: Source, function: Function, access: ast.Call, kinds: dict[str, Kind]) -> list[str]:
    """Return conditions that the indices of an access may need: each below each size of the kernel."""
    if not access.args:
        return []
    indices: list[str] = []
    for node in ast.walk(access.args[0]):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            indices.append(source.text_of(node))
        elif isinstance(node, ast.Name) and kinds.get(node.id) is Kind.INDEX:
            indices.append(node.id)
    sizes = [name for name in function.parameters if kinds.get(name) is Kind.SIZE]
    sizes += [name for name in _ends(function) if name not in indices]
    return [f"({index} < {size})" for index in dict.fromkeys(indices) for size in sizes]


def _ends(function: Function) -> list[str]:
    """Return the names of places where the part of a program may end: they are assigned no vector."""
    found = [
        target.id
        for node in function.nodes
        if isinstance(node, ast.Assign)
        and any(called(one) in ("minimum", "min") for one in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    ranges = (node.iter for node in function.nodes if isinstance(node, ast.For))
    stops = (one.args[1] for one in ranges if isinstance(one, ast.Call) and len(one.args) > 1)
    found += [one.id for one in stops if isinstance(one, ast.Name) and one.id not in function.parameters]
    return list(dict.fromkeys(found))


def _of_an_access(source: Source, node: ast.Call, masks: list[str], conditions: list[str]) -> Iterator[Edit]:
    kind, code = called(node), quoted(source.text_of(node))
    mask, text = _mask_of(node), source.text_of(node)
    for other in masks:
        if mask is None:
            mistake = f"the {kind} {code} has no mask"
            yield Edit.of_node(source, 0, node, f"{text[:-1].rstrip().rstrip(',')}, mask={other})", mistake)
        elif other != source.text_of(mask):
            mistake = f"{quoted(source.text_of(mask))} is not the mask for the {kind} {code}"
            mine, its = set(_conditions_of(source, mask)), set(other.split(" & "))
            turned = {_plain(_turned(one)) for one in mine} == {_plain(one) for one in its}
            if turned and "None" in other:
                mistake += ": its conditions lie along each other's axes"
            yield Edit.of_node(source, 1, mask, other, mistake)
    for condition in (*masks, *conditions):
        if mask is not None and condition != source.text_of(mask):
            mistake = f"the mask {quoted(source.text_of(mask))} of the {kind} {code} lacks a condition"
            yield Edit.of_node(source, 2, mask, f"({source.text_of(mask)}) & ({condition})", mistake)
        elif mask is None and condition in conditions:
            mistake = f"the {kind} {code} has no mask"
            yield Edit.of_node(
                source, 1, node, f"{text[:-1].rstrip().rstrip(',')}, mask={condition})", mistake
            )
    if kind != "load":
        return
    other_of = next((one.value for one in node.keywords if one.arg == "other"), None)
    if other_of is None and len(node.args) > 2:
        other_of = node.args[2]
    for value in ("0.0", "-float('inf')", "float('inf')", "1.0"):
        if other_of is not None and ast.unparse(ast.parse(value)) != ast.unparse(other_of):
            mistake = (
                f"masked-off lanes of {code} load {source.text_of(other_of)}, and that counts in what follows"
            )
            yield Edit.of_node(source, 1, other_of, value, mistake)
        elif other_of is None and mask is not None:
            mistake = f"masked-off lanes of {code} have no fixed value, and they count in what follows"
            yield Edit.of_node(source, 1, node, f"{text[:-1].rstrip().rstrip(',')}, other={value})", mistake)


def _of_a_name(source: Source, node: ast.Call, name: str) -> Iterator[Edit]:
    code = quoted(source.text_of(node))
    function = node.func
    spelled = source.text_of(function)
    meant = ((name, MISTAKEN[name]),) if name in MISTAKEN else ()
    for group in (*ALIKE, *meant):
        if name in group and spelled.endswith(name):
            for other in group:
                if other != name:
                    mistake = f"`{spelled}` is the wrong function in {code}"
                    rank = 1 if {name, other} in OPPOSITES else 2
                    text = spelled[: len(spelled) - len(name)] + other
                    if (name, other) == ("max", "min"):
                        rank, mistake = 4, wrong_maximum(source.text_of(node))
                    yield Edit.of_node(source, rank, function, text, mistake)
    if name in UNARY and len(node.args) == 1:
        mistake = f"`{spelled}` does not belong around {quoted(source.text_of(node.args[0]))}"
        yield Edit.of_node(source, 3, node, f"({source.text_of(node.args[0])})", mistake)


def _of_a_join(source: Source, node: ast.Call, name: str) -> Iterator[Edit]:
    """Put what tl.join has put in pairs behind each other: two vectors, or two blocks along one axis."""
    if name != "reshape" or not node.args:
        return
    joined = node.args[0]
    if isinstance(joined, ast.Call) and called(joined) == "join":
        code = source.text_of(joined)
        mistake = f"{quoted(code)} puts elements in pairs, and does not put one block behind the other"
        for order in ("(1, 0)", "(0, 2, 1)", "(2, 0, 1)"):  # of vectors, or of blocks along either axis
            yield Edit.of_node(source, 1, joined, f"tl.permute({code}, {order})", mistake)


def _of_a_stored_block(source: Source, node: ast.Call, name: str) -> Iterator[Edit]:
    """Store a block with its two axes exchanged."""
    value = stored(source, node) if name == "store" else None
    if value is not None:
        code = source.text_of(value)
        mistake = f"{quoted(code)} has its rows where {quoted(source.text_of(node.args[0]))} has columns"
        yield Edit.of_node(source, 3, value, f"tl.trans({code})", mistake)


def _of_a_result(source: Source, node: ast.Call, name: str) -> Iterator[Edit]:
    """Take an argument in place of what a call computes from it, or the result in another form."""
    code = quoted(source.text_of(node))
    if name in BINARY and len(node.args) == 2:
        for kept, dropped in (node.args, node.args[::-1]):
            mistake = f"{quoted(source.text_of(dropped))} does not belong in {code}"
            if name == "maximum" and not isinstance(dropped, ast.Constant):
                mistake = wrong_maximum(source.text_of(node))
            elif isinstance(dropped, ast.Constant):
                mistake = f"{code} does not belong there"
            yield Edit.of_node(source, 3, node, f"({source.text_of(kept)})", mistake)
    # With a number, as in `tl.maximum(n - 1, 1)`, that bounds the other one.
    if (
        name == "maximum"
        and len(node.args) == 2
        and not any(isinstance(one, ast.Constant) for one in node.args)
    ):
        both = " + ".join(f"({source.text_of(one)})" for one in node.args)
        mistake = f"{code} is the larger of two numbers, and not their sum"
        yield Edit.of_node(source, 3, node, f"({both})", mistake)
    if name in ("max", "min") and len(node.args) == 2 and source.text_of(node.func).startswith("tl."):
        both = ", ".join(map(source.text_of, node.args))
        mistake = f"{code} reduces one block, and does not choose between two values"
        yield Edit.of_node(source, 1, node, f"tl.{name}imum({both})", mistake)
    if name in ("clamp", "clip") and node.args:
        mistake = f"{code} cuts off values that are right"
        yield Edit.of_node(source, 1, node, f"({source.text_of(node.args[0])})", mistake)
    if name == "dot":
        mistake = f"{code} is the transposed product"
        yield Edit.of_node(source, 1, node, f"tl.trans({source.text_of(node)})", mistake)
    if name == "trans" and len(node.args) == 1:
        mistake = f"{code} does not belong there"
        yield Edit.of_node(source, 1, node, f"({source.text_of(node.args[0])})", mistake)
    if name == "cdiv" and len(node.args) == 2:
        left, right = map(source.text_of, node.args)
        mistake = f"{code} counts the last, partial block, and is used where only full blocks count"
        yield Edit.of_node(source, 3, node, f"(({left}) // ({right}))", mistake)


def _of_checked_axes(source: Source, node: ast.Call) -> Iterator[Edit]:
    """Check other axes of a block pointer."""
    for keyword in node.keywords:
        if keyword.arg == "boundary_check":
            checked, code = source.text_of(keyword.value), quoted(source.text_of(node))
            for other in CHECKED:
                if other != checked:
                    mistake = f"`boundary_check={checked}` does not check every axis that {code} may leave"
                    yield Edit.of_node(source, 0, keyword.value, other, mistake)


def _of_an_axis(source: Source, node: ast.Call, name: str, function: Function) -> Iterator[Edit]:
    of_numbers = isinstance(node.func, ast.Name) and name in BUILT_IN  # the second one is no axis
    if (name in REDUCTIONS and not of_numbers) or name in ("program_id", "num_programs"):
        axis = next((one.value for one in node.keywords if one.arg == "axis"), None)
        if axis is None and name.startswith(("program", "num_programs")) and node.args:
            axis = node.args[0]
        elif axis is None and len(node.args) > 1:
            axis = node.args[1]
        if isinstance(axis, ast.Constant):
            yield from _other_axis(source, axis, node)
    match node.args:
        case [ast.Constant() as only] if not function.kernel and name in DIMENSIONS:
            yield from _other_axis(source, only, node)


def _other_axis(source: Source, axis: ast.Constant, whole: ast.AST) -> Iterator[Edit]:
    if isinstance(axis.value, int):
        most = 3 if axis.value >= 2 else 2  # of a tensor with as many axes
        for other in range(most + 1):
            if other != axis.value:
                is_near = other < 2 if axis.value < 2 else abs(other - axis.value) == 1
                mistake = f"{quoted(source.text_of(whole))} takes the wrong axis"
                yield Edit.of_node(source, 0 if is_near else 2, axis, str(other), mistake)


def _of_a_cast(source: Source, node: ast.Call, name: str) -> Iterator[Edit]:
    code = quoted(source.text_of(node))
    if name == "load":
        mistake = (
            f"what {code} loads is not converted to fp32, and the arithmetic that follows has fewer digits"
        )
        yield Edit.of_node(source, 2, node, f"{source.text_of(node)}.to({SINGLE})", mistake)
    if name == "program_id":
        mistake = f"offsets made from {code} have 32 bits"
        yield Edit.of_node(source, 2, node, f"{source.text_of(node)}.to(tl.int64)", mistake)
    if name == "to" and isinstance(node.func, ast.Attribute):
        yield from _converted_first(source, node.func.value, node)
        mistake = f"the conversion in {code} loses digits"
        # To the dtype of something else: what is computed from it would seem to need more digits, too.
        rank = 1 if node.args and source.text_of(node.args[0]).endswith(".dtype") else 2
        yield Edit.of_node(source, rank, node, f"({source.text_of(node.func.value)})", mistake)
        if node.args and source.text_of(node.args[0]) != SINGLE:
            yield Edit.of_node(source, 2, node.args[0], SINGLE, mistake)
    if name in ("zeros", "full"):
        dtype = next((one.value for one in node.keywords if one.arg == "dtype"), None)
        dtype = dtype or (node.args[-1] if len(node.args) > 1 else None)
        if dtype is not None and source.text_of(dtype) != SINGLE:
            mistake = f"{code} keeps sums in {quoted(source.text_of(dtype))}"
            yield Edit.of_node(source, 1, dtype, SINGLE, mistake)


def _of_a_helper(source: Source, node: ast.Call, name: str) -> Iterator[Edit]:
    """Convert to fp32 what another kernel function of the file returns."""
    helper = source.functions.get(name)
    if helper and helper.kernel and any(isinstance(one, ast.Return) and one.value for one in helper.nodes):
        code = source.text_of(node)
        what = f"what {quoted(code)} returns is not converted to fp32"
        mistake = f"{what}, and the arithmetic that follows has fewer digits"
        yield Edit.of_node(source, 2, node, f"{code}.to({SINGLE})", mistake)


def _converted_first(source: Source, value: ast.expr, whole: ast.Call) -> Iterator[Edit]:
    """Convert to fp32 what arithmetic works on, where its result is converted."""
    if not whole.args or source.text_of(whole.args[0]) != SINGLE:
        return
    inside = value.args[0] if called(value) in REDUCTIONS and value.args else value  # type: ignore[attr-defined]
    operands = [inside.left, inside.right] if isinstance(inside, ast.BinOp) else [inside]
    if inside is value and not isinstance(inside, ast.BinOp):
        return
    parts = tuple((source.span(one), f"({source.text_of(one)}).to({SINGLE})") for one in operands)
    mistake = f"{quoted(source.text_of(value))} is computed before its conversion, in fewer digits"
    yield Edit(1, whole.lineno, mistake, parts)


def _counts_from_a_block(node: ast.Call) -> bool:
    """Return whether a number of blocks has the size of a block where the number of elements belongs."""
    first = node.args[0] if node.args and called(node) == "cdiv" else None
    return isinstance(first, ast.Name) and (first.id.isupper() or "block" in first.id.lower())


def _of_the_arguments(source: Source, node: ast.Call, function: Function) -> Iterator[Edit]:
    """Exchange two arguments of a launch, or of a call of another function of the file."""
    kernel = kernel_of(function.node, node, source.functions)
    own = isinstance(node.func, ast.Name) and node.func.id in source.functions
    launch = bool(kernel) and not own and not function.kernel
    if not (launch or own) and called(node) not in EXCHANGED and not _counts_from_a_block(node):
        return
    code = "the launch" if launch else quoted(source.text_of(node))
    plain = [one for one in node.args if not isinstance(one, ast.Starred)]
    parameters = source.functions[kernel].parameters if kernel else []
    for one, other in combinations(plain, 2):
        first, second = source.text_of(one), source.text_of(other)
        # `scale_of(p)` and `p` are one kind as well, although one is a name and the other computed.
        kinds = {_kind_of(one), _kind_of(other)}
        alike = len(kinds) == 1 or kinds == {"name", "expression"} or called(node) == "where"
        if first == second or not alike:
            continue
        parts = ((source.span(one), second), (source.span(other), first))
        mistake = f"in {code} the arguments {quoted(first)} and {quoted(second)} are exchanged"
        first_at, second_at = plain.index(one), plain.index(other)
        near = second_at - first_at == 1
        # Names tell where they are unlike now, and one is alike, or both, when exchanged.
        into = parameters[first_at : first_at + 1] + parameters[second_at : second_at + 1]
        now = any(_is_named_after(name, value) for name, value in zip(into, (one, other), strict=False))
        named_so = not now and any(
            _is_named_after(name, value) for name, value in zip(into, (other, one), strict=False)
        )
        pair = zip(into, (one, other), strict=False)
        both = (
            (launch or own) and len(into) == 2 and all(_is_named_after(name, value) for name, value in pair)
        )
        # What is passed by its own name is rarely wrong.
        rank = 3 if both else 2 if (launch and now) or not near else 1
        yield Edit(0 if named_so else rank, one.lineno, mistake, parts)
    named = [one for one in node.keywords if one.arg and not isinstance(one.value, ast.Constant)]
    for first_named, second_named in combinations(named, 2):
        left, right = source.text_of(first_named.value), source.text_of(second_named.value)
        # In place of a block's size what chooses warps lets each program do less, which hides mistakes.
        mixed = (first_named.arg in LAUNCHING) != (second_named.arg in LAUNCHING)
        if left != right and not mixed and _kind_of(first_named.value) == _kind_of(second_named.value):
            spans = (source.span(first_named.value), right), (source.span(second_named.value), left)
            mistake = f"in {code} `{first_named.arg}` and `{second_named.arg}` have each other's values"
            yield Edit(2, first_named.value.lineno, mistake, spans)


def _is_named_after(parameter: str, value: ast.expr) -> bool:
    """Return whether a parameter, such as `stride_dy`, has the name of what is passed: `dy.stride(0)`."""
    first = next(iter(names_in(value)), None)
    return first is not None and first.id in (parameter, *parameter.split("_"))


def _kind_of(node: ast.expr) -> str:
    """Return what an argument looks like: a stride, a size, or a name."""
    names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    names += [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]
    words = {word for name in names for word in name.split("_")}
    if words & {"stride", "strides"}:
        return "stride"
    if words & {"shape", "size", "numel"}:
        return "size"
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in SAME_TENSOR:
        node = node.func.value
    return "name" if isinstance(node, ast.Name | ast.Attribute) else "expression"


def _of_a_broadcast(source: Source, node: ast.Subscript) -> Iterator[Edit]:
    """Exchange `[:, None]` and `[None, :]`."""
    text = source.text_of(node.slice).replace(" ", "")
    other = {":,None": "None, :", "None,:": ":, None"}.get(text)
    if other:
        mistake = f"{quoted(source.text_of(node))} runs along the wrong axis of the block"
        yield Edit.of_node(source, 1, node.slice, other, mistake)
