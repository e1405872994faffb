"""What the interpreter saw of a call, in sentences; imports no torch."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from grader.worker.witness.record import Argument, Birth, Index, Outside, Race

VERBS = {"load": "loads", "store": "stores", "atomic": "changes"}


def outside(fact: Outside) -> str:
    """Say which access lies outside: `line 76 reads bias[40..63] of 40, in program 0`."""
    verb = "writes" if fact.writes else "reads"
    return (
        f"{_line(fact.line)} {verb} {_places(fact.tensor, fact.first, fact.last)}, "
        f"in program {_program(fact.program, fact.grid)}"
    )


def cause_outside(fact: Outside) -> str:
    """Say what is wrong with an access outside, without numbers of the case."""
    what, name = ("store to" if fact.writes else "load from"), f"`{fact.tensor.name}`"
    end = "before its beginning" if fact.last < 0 else "past its end"
    if not fact.masked and fact.last < 0:  # lanes past an end are left out by masks, and these by none
        why = "the offset that its address is made of is negative"
        return f"{_line(fact.line)}: the {what} {name} goes {end}: {why}"
    if not fact.masked and fact.first == fact.last:  # of a program, perhaps, that should not be there
        return f"{_line(fact.line)}: the {what} {name} goes {end}, and has no mask: look at the grid as well"
    if not fact.masked:
        return f"{_line(fact.line)}: the {what} {name} has no mask"
    look = "look at its mask, and at how its address is made"
    return f"{_line(fact.line)}: the {what} {name} goes {end}: {look}"


def race(fact: Race) -> str:
    """Say which programs meet where: `programs 3 and 4 both store out[1024]`."""
    place = _place(fact.tensor, fact.element)
    one, other = (_program(program, fact.grid) for program in fact.programs)
    first, second = (VERBS[kind] for kind in fact.accesses)
    if fact.accesses == ("store", "store"):
        return f"programs {one} and {other} both store {place}, in {_lines(fact.lines)}"
    return (
        f"program {one} {first} {place} in {_line(fact.lines[0])}, "
        f"and program {other} {second} it in {_line(fact.lines[1])}"
    )


def cause_race(fact: Race) -> str:
    """Say what is wrong with two accesses that are in no order, without numbers of the case."""
    name = f"`{fact.tensor.name}`"
    if fact.accesses == ("store", "store"):
        meet = f"{_lines(fact.lines)}: two programs store one element of {name}"
    else:
        first, second = (VERBS[kind] for kind in fact.accesses)
        meet = f"{_lines(fact.lines)}: one program {first} an element of {name}, another one {second} it"
    return f"{meet}, and programs run in any order"


def births(facts: Sequence[Birth]) -> str:
    """Say where a NaN or inf came from: `line 31: -inf - -inf is nan`; or where digits were lost."""
    return "; ".join(
        f"{_line(one.line)} loses digits: {_operation(one)} gives {one.result}, and without any rounding "
        f"before it would be {one.exact}"
        if one.exact
        else f"{_line(one.line)}: {_operation(one)} is {one.result}"
        for one in facts
    )


def wraps(facts: Sequence[Birth], text: str) -> str:
    """Say which sums and products wrap around in 32 bits, with their text in the file and the numbers of one.

    A product comes first: what is added to one that has wrapped around is wrong already.
    """
    one = min(facts, key=lambda fact: fact.operation != "*")
    same = sorted({fact.line for fact in facts if fact.operation == one.operation})
    written = [_written(text, line, one.operation) for line in same]
    where = _line(same[0]) if len(same) == 1 else f"lines {', '.join(map(str, same))}"
    what = " and ".join(dict.fromkeys(" or ".join(f"`{node}`" for node in nodes) for nodes in written))
    verb = "are" if len(written) > 1 else "is"
    return (
        f"{where}: {what or one.operation} {verb} computed in int32, where {_operation(one)} wraps to "
        f"{one.result}; beyond 2^31 elements a number becomes int64 before it is multiplied or added"
    )


def groupings(facts: Sequence[Birth], text: str) -> str:
    """Say which function of a reduction or scan is not associative, with both results of three elements."""
    one = facts[0]
    name, called = _combining(text, one.line)
    return (
        f"{_line(one.line)}: {called} needs an associative function, and {name} is not: of the same "
        f"three elements it makes {one.result} if the first two are combined first, and {one.exact} if "
        "the last two are"
    )


def lines_of_combining(fact: Birth, text: str) -> range:
    """Return the lines of the function that a reduction or scan combines with; none if it is not found."""
    name, _ = _combining(text, fact.line)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and f"`{node.name}`" == name:
            return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


def _combining(text: str, line: int) -> tuple[str, str]:
    """Return the function that a reduction or scan of this line combines with, and what it calls."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return "its function", "this"
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno):
            for given in (*node.args, *(one.value for one in node.keywords)):
                if isinstance(given, ast.Name) and given.id in functions:
                    return f"`{given.id}`", f"`{ast.unparse(node.func)}`"
    return "its function", "this"


def _written(text: str, line: int, operation: str) -> list[str]:
    """Return the sums, differences or products of one line as they are written, without their parts."""
    kinds = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and isinstance(node.op, kinds[operation])
    ]
    parts = {id(inside) for node in found for inside in ast.walk(node) if inside is not node}
    return [ast.unparse(node) for node in found if id(node) not in parts]


def _operation(birth: Birth) -> str:
    if len(birth.operands) == 2:
        return f"{birth.operands[0]} {birth.operation} {birth.operands[1]}"
    return f"{birth.operation} of {', '.join(birth.operands)}"


def _line(line: int) -> str:
    return f"line {line}" if line else "a kernel"


def _lines(lines: tuple[int, int]) -> str:
    one, other = lines
    if one == other or not (one and other):
        return _line(one or other)
    return f"lines {min(lines)} and {max(lines)}"


def _program(program: Index, grid: Index) -> str:
    axes = max((axis for axis in range(3) if grid[axis] > 1), default=0) + 1
    return str(program[0]) if axes == 1 else str(program[:axes]).replace(" ", "")


def _places(tensor: Argument, first: int, last: int) -> str:
    """Say where elements lie that are not of the tensor."""
    name, of = tensor.name or "a tensor", _size(tensor)
    if last < 0:
        return (
            f"{name} {-first} elements before its first one"
            if first == last
            else (f"{name} {-first} to {-last} elements before its first one")
        )
    if len(tensor.shape) == 1 and tensor.strides[0] == 1:
        places = f"{first}" if first == last else f"{first}..{last}"
        return f"{name}[{places}] of {of}"
    one, other = _index(tensor, first), _index(tensor, last)
    if one[:-1] == other[:-1]:
        row = "".join(f"{part}, " for part in one[:-1])
        places = f"{one[-1]}" if one == other else f"{one[-1]}..{other[-1]}"
        return f"{name}[{row}{places}] of {of}"
    return f"{name}[{_listed(one)}] to [{_listed(other)}] of {of}"


def _place(tensor: Argument, element: int) -> str:
    index = (element,) if len(tensor.shape) < 2 else _index(tensor, element)
    return f"{tensor.name or 'a tensor'}[{_listed(index)}]"


def _index(tensor: Argument, element: int) -> tuple[int, ...]:
    """Return the index of an element; that of the outermost axis may be outside of the tensor."""
    axes = sorted(range(len(tensor.shape)), key=lambda axis: -abs(tensor.strides[axis]))
    index, rest = [0] * len(axes), element
    for axis in axes:
        if tensor.strides[axis] > 0 and tensor.shape[axis] != 1:
            index[axis], rest = divmod(rest, tensor.strides[axis])
    return tuple(index)


def _listed(index: Sequence[int]) -> str:
    return ", ".join(map(str, index))


def _size(tensor: Argument) -> str:
    return " x ".join(map(str, tensor.shape)) or "1"
