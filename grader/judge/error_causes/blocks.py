"""Blocks and statements in a kernel: constants, dtypes, and what the language of a kernel lacks."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator, Sequence

from grader.judge.error_causes.failed import Failed, assigned, constants, parameters, short
from grader.judge.error_causes.known_names import public

STATEMENTS = {  # of Python, that a kernel lacks
    "Continue": "a kernel's loop has no `continue`: put what is left out under an `if`, or into a mask",
    "Break": "a kernel's loop has no `break`: choose the bounds of the loop, or use `while`",
    "Try": "a kernel has no `try`",
    "Raise": "a kernel raises no exceptions",
    "List": "a kernel has no lists",
    "ListComp": "a kernel has no list comprehensions",
    "Dict": "a kernel has no dicts",
    "Set": "a kernel has no sets",
    "Lambda": "a kernel has no lambda: write a function under `@triton.jit`",
    "FunctionDef": "a kernel defines no functions inside: write it beside the kernel, under `@triton.jit`",
    "Import": "a kernel imports nothing: import at the top of the file",
    "With": "a kernel has no `with`",
    "Yield": "a kernel has no `yield`",
    "Delete": "a kernel has no `del`",
    "Global": "a kernel assigns to no global variables",
}
GIVE_SEVERAL = ("rand4x", "randn4x", "randint4x", "split")
_STATEMENT = re.compile(r"unsupported AST node type: (\w+)")
_CARRIED = re.compile(
    r"Loop-carried variable (\w+) has initial type (.+?) but is re-assigned to (.+?) in (?:the )?loop",
    re.DOTALL,
)
_BRANCHES = re.compile(r"[Mm]ismatched type for (\w+) between then block \((.+?)\) and else block \((.+?)\)")
_FLOAT_ADDRESS = re.compile(
    r"invalid operands of type (?:pointer<\w+> and \S*float\d+|\S*float\d+ and pointer)"
)
_NUMEL = re.compile(r"numel \((\d+)\) exceeds triton maximum tensor numel \((\d+)\)")


def statement(failed: Failed) -> str | None:
    """A statement that the language of kernels lacks."""
    found = _STATEMENT.search(failed.text)
    if found:
        return STATEMENTS.get(found[1], f"a kernel cannot contain this: Python's {found[1]}")
    if re.search(r"Cannot have `?return`? statements inside", failed.text):
        return "a kernel cannot `return` from inside a loop"
    if re.search(r"simultaneous multiple comparison", failed.text):
        compared = next((one for one in failed.nodes(ast.Compare) if isinstance(one, ast.Compare)), None)
        if compared is None or len(compared.ops) < 2:
            return "a chained comparison is not possible in a kernel: join two of them by `&`"
        inner = compared.comparators[0]
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.BitAnd, ast.BitOr)):
            sign = "&" if isinstance(inner.op, ast.BitAnd) else "|"
            return f"`{sign}` binds more tightly than a comparison: put each comparison into parentheses"
        first = ast.unparse(ast.Compare(compared.left, compared.ops[:1], compared.comparators[:1]))
        second = ast.unparse(ast.Compare(compared.comparators[0], compared.ops[1:], compared.comparators[1:]))
        return f"a kernel has no chained comparison: write `({first}) & ({second})`"
    if re.search(r"[Bb]oolean value of [Tt]ensor|truth value of an array", failed.text):
        return _truth(failed)
    return None


def _truth(failed: Failed) -> str:
    match failed.statement:
        case ast.If(test=test) | ast.While(test=test):
            return (
                f"{short(test)} has a value for each element, and `if` takes one: "
                "choose with `tl.where`, or with a mask"
            )
    for node in failed.nodes(ast.BoolOp):
        if isinstance(node, ast.BoolOp):
            operator = "&" if isinstance(node.op, ast.And) else "|"
            word = "and" if operator == "&" else "or"
            return (
                f"`{word}` takes one truth value on each side: `{operator}` joins two blocks element "
                "by element"
            )
    return (
        "a block has a truth value for each element, and here one is taken: use `&`, `|`, `~` or `tl.where`"
    )


def loop(failed: Failed) -> str | None:
    """A loop over something else than a range, and what has no length."""
    if not failed.in_kernel:
        return None
    if isinstance(failed.statement, ast.For) and re.search(
        r"is not iterable|has no attribute 'func'|Only .*range.* iterators", failed.text
    ):
        return "a kernel's `for` goes over `range(...)`, `tl.range(...)` or `tl.static_range(...)`"
    if re.search(r"object of type 'tensor' has no len\(\)", failed.text):
        return "a pointer or a block has no `len()`: pass the size to the kernel"
    return None


def part(failed: Failed) -> str | None:
    """A part of a tuple that a loop counts: the compiler must know which."""
    if not failed.in_kernel or (failed.kind != "AssertionError" and "AssertionError" not in failed.text):
        return None
    counted = {
        one.target.id: one.iter
        for one in ast.walk(failed.function or ast.Module([], []))
        if isinstance(one, ast.For) and isinstance(one.target, ast.Name)
    }
    for node in failed.nodes(ast.Subscript):
        match node:
            case ast.Subscript(ast.Name(name), ast.Name(index)) if index in counted:
                several = any(
                    isinstance(one, ast.Tuple) or ast.unparse(one.func).endswith(GIVE_SEVERAL)
                    for one in assigned(failed.function, name)
                    if isinstance(one, ast.Tuple | ast.Call)
                )
                if several and "static_range" not in ast.unparse(counted[index]):
                    return (
                        f"`{name}` has several parts, and `{index}` is known only when the kernel runs: "
                        "count with `tl.static_range`, or give each part a name"
                    )
    return None


def values(failed: Failed) -> str | None:
    """A text for a number, an option that does not exist, an axis of the grid beyond the third."""
    found = re.search(r"cannot convert (.+) of type <class 'str'> to tensor", failed.text)
    if found:
        number = re.fullmatch(r"[-+]?(?:inf|nan|[\d.e]+)", found[1])
        more = f': `float("{found[1]}")`' if number else ""
        return f'the text "{found[1]}" stands where a number or a block is wanted{more}'
    found = re.search(
        r"(Eviction policy|Cache modifier|Memory semantic|Memory scope|Padding option) (\S+) not", failed.text
    )
    if found:
        policies = ': it is `"evict_first"` or `"evict_last"`' if found[1] == "Eviction policy" else ""
        return f'"{found[2]}" is no {found[1].lower()}{policies}'
    if re.search(r"(?:program_id|num_programs) axis must be 0, 1,? or 2", failed.text):
        return "a grid has the axes 0, 1 and 2"
    return None


def constant(failed: Failed) -> str | None:
    """A bound or a shape that is no constant of compilation."""
    text = failed.text
    wants = re.search(r"arguments must be of type (?:tl\.)?constexpr|must have type `?constexpr", text)
    if not wants or failed.function is None:
        return None
    own, fixed = parameters(failed.function), constants(failed.function)
    for call in failed.calls():
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in (
            "arange",
            "zeros",
            "full",
            "reshape",
        ):
            continue
        function = f"`tl.{call.func.attr}`"
        for node in ast.walk(call):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                return f"{short(node)} is a float, also where it divides without a rest: write `//`"
        for node in ast.walk(call):
            if isinstance(node, ast.Name) and node.id in own and node.id not in fixed:
                more = (
                    f": mark it as `{node.id}: tl.constexpr`"
                    if node.id.isupper() and len(node.id) > 1
                    else ": take a constant as the length, and a mask"
                )
                return (
                    f"{function} needs constants, and `{node.id}` is not marked as a `tl.constexpr`, "
                    f"so it is known only when the kernel runs{more}"
                )
        return f"{function} needs constants of compilation: numbers, or parameters marked `tl.constexpr`"
    return None


def arange(failed: Failed) -> str | None:
    """The bounds of tl.arange, and blocks that are too large."""
    if re.search(
        r"range must be a power of (?:2|two)|Shape element \d+ must be a power of (?:2|two)", failed.text
    ):
        what = "the length of a `tl.arange`" if failed.text.startswith("arange") else "each side of a block"
        others = _listed_sizes(failed)
        if len(others) == 1:
            return (
                f"{what} must be a power of two, and {others[0].value!r} in line {others[0].lineno} is none"
            )
        odd = [f"{name} = {one}" for name, one in failed.numbers.items() if one > 0 and one & (one - 1)]
        if len(odd) == 1:
            return f"{what} must be a power of two, and line {failed.line} runs with {odd[0]}"
        return f"{what} must be a power of two: take the next one, and a mask"
    if "32 bit `offsets/block_shape`" in failed.text:
        return (
            "the offsets of a block pointer are of 32 bits: what may be larger, as a place in memory, is "
            "added to the base"
        )
    if re.search(r"end argument must be greater than the start", failed.text):
        return "`tl.arange(start, end)` must have its end behind its start"
    found = _NUMEL.search(failed.text)
    if found:
        size, most = int(found[1]), int(found[2])
        return (
            f"a block has at most {most:,} elements, and this one has {size:,}: look at "
            "its axes, or give the work to more programs"
        )
    return None


def _listed_sizes(failed: Failed) -> list[ast.Constant]:
    """Return whole numbers of tables that are no powers of two, each once: they may be sides of blocks."""
    of_kernels = {id(node) for kernel in failed.source.kernels.values() for node in ast.walk(kernel)}
    tables = (
        node
        for node in ast.walk(failed.source.tree)
        if isinstance(node, ast.List | ast.Tuple | ast.Dict) and id(node) not in of_kernels
    )
    found: dict[int, ast.Constant] = {}
    inside = [one for table in tables for one in ast.iter_child_nodes(table)]
    given = [
        arg for one in inside if isinstance(one, ast.Call) for arg in one.args
    ]  # of a function that makes one
    for one in (*inside, *given):
        value = one.value if isinstance(one, ast.Constant) else None
        if isinstance(one, ast.Constant) and type(value) is int and value > 16 and value & (value - 1):
            found.setdefault(value, one)
    return [*found.values()]


def pointer_type(failed: Failed) -> str | None:
    """A value that is converted to the type of a pointer."""
    if "cannot cast" not in failed.text or failed.function is None:
        return None
    for node in ast.walk(failed.function):
        match node:
            case ast.Attribute(ast.Name(name), "dtype") if name in parameters(failed.function):
                return (
                    f"`{name}.dtype` is the type of a pointer, and no value can have it: "
                    f"the type of its elements is `{name}.dtype.element_ty`"
                )
    return None


def _never_summed(failed: Failed) -> ast.Name | None:
    """Return where a block of zeros that is stored to one element begins, if no line reduces it."""
    for call in failed.calls():
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "store" and len(call.args) > 1):
            continue
        stored = {one.id for one in ast.walk(call.args[1]) if isinstance(one, ast.Name)}
        for node in ast.walk(failed.function or ast.Module([], [])):
            match node:
                case ast.Assign([ast.Name(name) as target], ast.Call(ast.Attribute(attr="zeros" | "full"))):
                    if name in stored and not _is_reduced(failed.function, name):
                        return target
    return None


def _is_reduced(function: ast.AST | None, name: str) -> bool:
    return any(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr in ("sum", "max", "min", "reduce")
        and any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(one))
        for one in (ast.walk(function) if function else ())
    )


def pointer(failed: Failed) -> str | None:
    """A pointer that is indexed or added to another."""
    found = re.search(
        r"(Mask|Value|Other) argument cannot be block type if pointer argument is not", failed.text
    )
    if found:
        lanes = _never_summed(failed) if found[1] == "Value" else None
        if lanes:
            return (
                f"`{lanes.id}` has been a block since line {lanes.lineno}, and nothing sums its lanes up: "
                "the pointer is that of one element"
            )
        other = (
            "or sum the block up to one number"
            if found[1] == "Value"
            else "or look whether they stand in another place"
        )
        return (
            f"the pointer is that of one element, and the {found[1].lower()} is a block: "
            f"add the offsets to the pointer, {other}"
        )
    if re.search(r"cannot add pointers together", failed.text):
        return "two pointers are added: load the values first, and add these"
    indexed = re.search(
        r"is not iterable|_semantic. argument must be provided|not subscriptable", failed.text
    )
    if indexed and failed.in_kernel and failed.function:
        for node in failed.nodes(ast.Subscript):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Name)
                and node.value.id in parameters(failed.function)
                and node.value.id not in constants(failed.function)
            ):
                code = f"tl.load({node.value.id} + {ast.unparse(node.slice)})"
                return f"a pointer is not indexed: {short(node)} is `{code}`, with a mask where it may end"
    return None


def address(failed: Failed) -> str | None:
    """A pointer plus a floating-point number that a division has made."""
    if not _FLOAT_ADDRESS.search(failed.text) or failed.function is None:
        return None
    pointers = {one for one in parameters(failed.function) if "ptr" in one} - {*constants(failed.function)}
    offsets = list[ast.expr]()
    for node in failed.nodes(ast.BinOp):
        terms = _terms(node)
        if any(isinstance(one, ast.Name) and one.id in pointers for one in terms):
            offsets += terms
    found = [node for node in (_division(failed, one) for one in offsets) if node is not None]
    if not found:
        return None
    words = "an offset from a pointer is a whole number, and this one is a floating-point number"
    return f"{words}: {short(found[0])} in line {found[0].lineno} gives one, and `//` a whole number"


def _terms(node: ast.AST) -> list[ast.expr]:
    """Return the terms of a sum; the one of any other expression."""
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            return [*_terms(left), *_terms(right)]
        case ast.expr():
            return [node]
    return []


def _division(failed: Failed, offset: ast.expr) -> ast.BinOp | None:
    """Return the nearest `/` of which an offset is made; None if a loaded value is in it, too."""
    parts = deque[tuple[ast.FunctionDef | None, ast.AST]]([(failed.function, offset)])
    seen = set[str]()
    while parts:
        function, part = parts.popleft()
        nodes = [*ast.walk(part)]
        if any(isinstance(one, ast.Attribute) and one.attr == "load" for one in nodes):
            return None
        for node in nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                return node
        for node in nodes:
            match node:
                case ast.Call(ast.Name(name)) if name not in seen and (own := failed.source.defined(name)):
                    seen.add(name)
                    parts.append((own, own))
                case ast.Name(name) if function is not None and f"{function.name}.{name}" not in seen:
                    seen.add(f"{function.name}.{name}")
                    parts += [(function, value) for value in assigned(function, name)]
    return None


def types(failed: Failed) -> str | None:
    """A variable whose type changes, and bounds that are no whole numbers."""
    found = _CARRIED.search(failed.text)
    if found:
        name, first, later = found[1], _type(found[2]), _type(found[3])
        return (
            f"`{name}` is {first} before the loop and {later} at the end of an iteration: "
            "give it the same shape and dtype at both places"
        )
    found = _BRANCHES.search(failed.text)
    if found:
        return (
            f"`{found[1]}` is {_type(found[2])} in one branch of the `if` and {_type(found[3])} in the other"
        )
    if failed.in_kernel and re.search(r"'NoneType' object has no attribute 'type'", failed.text):
        name = _none_in_a_branch(failed)
        if name:
            return (
                f"`{name}` is None in one branch of this `if` and a block in the other, and a variable of a "
                "kernel has one type: None can be chosen only by a condition on constants"
            )
    in_range = any(
        getattr(call.func, "id", getattr(call.func, "attr", "")) == "range" for call in failed.calls()
    )
    no_integer = in_range and re.search(r"'float' object cannot be interpreted as an integer", failed.text)
    if no_integer or re.search(r"[Ff]or loop bounds and step must all be ints", failed.text):
        return "a bound of `range` is a float: `/` gives one, `//` or `tl.cdiv` a whole number"
    return None


def _none_in_a_branch(failed: Failed) -> str:
    """Return the name that one branch of the failing `if` sets to None and the other to something else."""
    branch = failed.statement
    if not isinstance(branch, ast.If):
        return ""
    for name in {one.id for one in ast.walk(branch) if isinstance(one, ast.Name)}:
        sides = [[*_set_in(body, name)] for body in (branch.body, branch.orelse)]
        are_none = [[isinstance(one, ast.Constant) and one.value is None for one in side] for side in sides]
        if all(sides) and all(are_none[0]) != all(are_none[1]):
            return name
    return ""


def _set_in(body: Sequence[ast.stmt], name: str) -> Iterator[ast.expr]:
    for statement in body:
        yield from assigned(statement, name)


def _type(words: str) -> str:
    """A type of Triton's in words: `<['4096'], fp32>` is a block of 4096 fp32 numbers."""
    found = re.fullmatch(r"<\[(.*)\], (\w+)>", words.strip())
    if not found:
        return f"one {words.strip()}"
    return f"a block of {' x '.join(re.findall(r'[0-9]+', found[1]))} {found[2]}"


def python_function(failed: Failed) -> str | None:
    """A function of Python's math on a block."""
    said = re.search(
        r"must be real number, not (?:tensor|Tensor)|only (?:length-1|0-dimensional) arrays|"
        r"'float' object has no attribute '(?:dtype|type|to|handle)'|"
        r"float division by zero|math domain error",
        failed.text,
    )
    if not said or not failed.in_kernel:
        return None
    for call in failed.calls():
        match call.func:
            case ast.Attribute(value=ast.Name(id="math"), attr=name):
                instead = f": `tl.{name}` works on blocks" if name in public("triton.language") else ""
                return f"`math.{name}` takes one number of Python{instead}"
    return None


def other_without_mask(failed: Failed) -> str | None:
    """A value for masked lanes, where there is no mask."""
    if "`other` cannot be provided without `mask`" not in failed.text:
        return None
    return (
        "this `tl.load` has `other=` and no mask: where the mask is None, or is left out, there is nothing "
        "for `other` to stand in for"
    )


def block_pointer_has_no_mask(failed: Failed) -> str | None:
    """A mask, or a value for masked lanes, beside a block pointer."""
    found = re.search(r"cannot be specified for (loading|storing) block pointers", failed.text)
    if not found:
        return None
    if found[1] == "storing":
        return "a store to a block pointer takes no `mask`: `boundary_check` names the axes that may end"
    return (
        "a load from a block pointer takes neither `mask` nor `other`: `boundary_check` names the axes that "
        "may end, and `padding_option` what is loaded there"
    )


RULES = (
    block_pointer_has_no_mask,
    other_without_mask,
    statement,
    loop,
    part,
    values,
    constant,
    arange,
    pointer,
    pointer_type,
    address,
    types,
    python_function,
)
