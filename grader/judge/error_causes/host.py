"""Host code: values of the wrong kind, sizes, autograd functions, assertions and devices."""

from __future__ import annotations

import ast
import re

from grader.course.spec import Verdict
from grader.judge.error_causes.failed import Failed, short

NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
_UNPACK = re.compile(
    r"(not enough|too many) values to unpack \(expected (?:at least )?(\d+)(?:, got (\d+))?\)"
)
_METHOD = re.compile(r"\b(builtin_function_or_method|function|method|method-wrapper)\b")
_NOT_CALLABLE = re.compile(r"'([\w.]+)' object is not callable")
_CONCATENATED = re.compile(r"can only concatenate tuple .*to torch\.Size|torch\.Size.*torch\.Size")
NO_METHODS = {
    "shape",
    "saved_tensors",
    "dtype",
    "device",
    "ndim",
    "T",
    "is_cuda",
    "requires_grad",
    "itemsize",
}
_KIND = re.compile(r"'([<>=!]+)' not supported between instances of '([\w.]+)' and '([\w.]+)'")


def not_called(failed: Failed) -> str | None:
    """A method that is named and not called."""
    if not _METHOD.search(failed.text) or failed.kind not in ("TypeError", "AttributeError"):
        return None
    if failed.in_kernel and not failed.launch():
        return None
    subscripts = [one for one in failed.nodes(ast.Subscript) if isinstance(one, ast.Subscript)]
    for node in subscripts:
        if isinstance(node.value, ast.Attribute) and re.search(r"not subscriptable", failed.text):
            code, index = ast.unparse(node.value), ast.unparse(node.slice)
            return f"`{code}` is a method: write `{code}({index})`"
    for name in [one.id for one in failed.nodes(ast.Name) if isinstance(one, ast.Name)]:
        made = _last_value(failed, name)
        if isinstance(made, ast.Attribute):
            return f"`{name}` is the method `{ast.unparse(made)}` itself, not its result: `()` is missing"
    launch = failed.launch()
    if launch:
        given = {function.name for source in failed.given.values() for function in source.functions}
        for one in launch[1].keywords:
            name = getattr(one.value, "id", "")
            if one.arg and name and (failed.source.defined(name) or name in given):
                return (
                    f"the launch passes the function {short(one.value)} as `{one.arg}`, and does not call it"
                )
    return None


def _last_value(failed: Failed, name: str) -> ast.expr | None:
    """What is assigned to a name above the line of the error."""
    found = None
    for node in ast.walk(failed.function) if failed.function else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                if node.lineno <= failed.line:
                    found = value
    return found


def shape_as_number(failed: Failed) -> str | None:
    """A shape that is used as if it were one number."""
    found = _KIND.search(failed.text)
    kinds = (found[2], found[3]) if found else ()
    if "torch.Size" not in kinds and not _CONCATENATED.search(failed.text):
        return None
    for name in [one.id for one in failed.nodes(ast.Name) if isinstance(one, ast.Name)]:
        match _last_value(failed, name):
            case (ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="size"), args=[])) as made:
                return f"`{name}` is {short(made)}, a tuple of all sizes, and here one number is wanted"
    return "the tuple of all sizes of a tensor stands where one number is wanted"


def not_callable(failed: Failed) -> str | None:
    """A value that is called as if it were a method."""
    found = _NOT_CALLABLE.search(failed.text)
    for call in failed.calls() if found else ():
        if isinstance(call.func, ast.Attribute) and call.func.attr in NO_METHODS:
            return f"{short(call.func)} is a value and no method: leave the parentheses out"
    return None


def unpacked(failed: Failed) -> str | None:
    """As many names as there are values."""
    found = _UNPACK.search(failed.text)
    if not found:
        return None
    names, few = int(found[2]), found[1] == "not enough"
    wanted = f"{number(names)} name{'s' * (names != 1)}"
    has = f"has {number(int(found[3]))}" if found[3] else "has more"
    match failed.statement:
        case ast.Assign(value=ast.Attribute(attr="saved_tensors")):
            more = "fewer" if few else "more"
            return (
                f"`forward` saved {more} tensors than the {wanted} here: take all of them, in the "
                "order they were saved"
            )
        case ast.Assign(value=value) if isinstance(value, ast.Attribute) and value.attr == "shape":
            return f"{wanted} {_take(names)} the sizes, and {short(value)} {has}"
        case ast.Assign(value=ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr=name))):
            return (
                f"`tl.{name}` gives {'fewer' if few else 'more'} values than the {wanted} on the left"
                + _rand(name)
            )
        case ast.Assign(value=value):
            return f"{short(value)} gives {'fewer' if few else 'more'} values than the {wanted} on the left"
    return None


def _rand(name: str) -> str:
    return ": it gives four blocks" if name in ("rand4x", "randn4x", "randint4x") else ""


def _take(count: int) -> str:
    return "take" if count != 1 else "takes"


def number(count: int) -> str:
    """A small number as a word."""
    return NUMBERS.get(count, str(count))


def index(failed: Failed) -> str | None:
    """An index beyond the end, most often of a shape."""
    if failed.kind != "IndexError":
        return None
    for node in failed.nodes(ast.Subscript):
        match node:
            case ast.Subscript(
                value=ast.Attribute(attr="shape") as of, slice=ast.Constant(value=int(at))
            ) if at > 0:
                if at >= 2 or "," not in failed.code:
                    return (
                        f"{short(of)} has no index {at}: the tensor has fewer dimensions, and they "
                        "count from 0"
                    )
    found = re.search(r"Dimension out of range .*got (-?\d+)", failed.text)
    if found:
        return f"the tensor has no dimension {found[1]}: dimensions count from 0"
    return "an index lies behind the end: indices count from 0"


def division(failed: Failed) -> str | None:
    """A divisor that is 0 for the sizes of a case."""
    if failed.kind != "ZeroDivisionError":
        return None
    divisors = [
        node.right
        for node in failed.nodes(ast.BinOp)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod))
    ]
    divisors += [call.args[1] for call in failed.calls() if _is_cdiv(call) and len(call.args) > 1]
    divisors = [one for one in divisors if not isinstance(one, ast.Constant)]
    if len(divisors) > 1:  # the innermost are computed first, and may be the 0 of the one around them
        composite = [one for one in divisors if any(isinstance(part, ast.FloorDiv) for part in ast.walk(one))]
        divisors = composite if len(composite) == 1 else divisors
    if len(divisors) == 1:
        return f"the divisor {short(divisors[0])} is 0 for the sizes of this case"
    return None


def _is_cdiv(call: ast.Call) -> bool:
    return (
        isinstance(call.func, (ast.Attribute, ast.Name))
        and (getattr(call.func, "attr", "") or getattr(call.func, "id", "")) == "cdiv"
    )


def recursion(failed: Failed) -> str | None:
    """Functions that call each other without an end."""
    if failed.kind != "RecursionError" or not failed.frames:
        return None
    names = list(dict.fromkeys(one.function for one in failed.frames if one.function))
    if len(names) == 1:
        return f"`{names[0]}` calls itself without an end"
    return f"{' calls '.join(f'`{one}`' for one in names[::-1])}, and so it calls itself without an end"


def device(failed: Failed) -> str | None:
    """A GPU that is asked for where there is none."""
    nodes = list(failed.nodes(ast.Constant, ast.Attribute))
    if re.search(
        r"Torch not compiled with CUDA|No CUDA GPUs|Found no NVIDIA driver|no NVIDIA GPU", failed.text
    ):
        return (
            "this machine has no GPU, and the line asks for one: take the device of an input, "
            "`device=x.device`"
        )
    if failed.kind == "AssertionError":
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr == "is_cuda" and failed.tier != "gpu":
                return (
                    "this machine has no GPU, so all tensors are on the CPU and `is_cuda` is False: "
                    "leave the assertion out"
                )
            if isinstance(node, ast.Constant) and node.value == "cuda" and failed.tier != "gpu":
                return (
                    "this machine has no GPU, so all tensors are on the CPU: leave the assertion on "
                    "the device out"
                )
    if re.search(r"ByChance|StandIn", failed.text) or re.search(r"0 active drivers", failed.text):
        return (
            "the active GPU is asked for, and this machine has none: take the device of an input, `x.device`"
        )
    return None


def own_assertion(failed: Failed) -> str | None:
    """An assertion or an exception of the file itself."""
    match failed.statement:
        case ast.Assert(test=test) if failed.kind == "AssertionError" and not failed.in_kernel:
            return (
                f"{short(test)} of the file's own `assert` is False here, and the inputs are such as "
                "the README permits"
            )
        case ast.Raise() if not failed.in_kernel:
            return "the file itself raises this, and the inputs are such as the README permits"
    return None


def descriptor(failed: Failed) -> str | None:
    """A descriptor of a tensor whose layout it cannot have."""
    text = failed.text
    if "strides must be 16-byte aligned" in text or "base must be 16-byte aligned" in text:
        what = "each stride but the last, and the address, must be a multiple of 16 bytes"
    elif "Last dimension must be contiguous" in text or "last dimension must be contiguous" in text:
        what = "the elements of the last axis must lie side by side"
    else:
        return None
    return (
        f"of a tensor with such strides there is no tensor descriptor: {what}. Look which tensors it is made "
        "of, and whether each of them is asked for it before; the others go to plain pointers"
    )


def endless(failed: Failed) -> str | None:
    """A loop whose condition nothing in the loop can change."""
    if failed.verdict is not Verdict.TIMEOUT:
        return None
    for loop in ast.walk(failed.source.tree):
        if isinstance(loop, ast.While) and not _may_end(loop):
            return f"the `while` in line {loop.lineno} never ends: nothing in it changes {short(loop.test)}"
    return None


def _may_end(loop: ast.While) -> bool:
    if any(isinstance(one, (ast.Call, ast.Attribute, ast.Subscript)) for one in ast.walk(loop.test)):
        return True
    names = {one.id for one in ast.walk(loop.test) if isinstance(one, ast.Name)}
    inside = [part for one in loop.body for part in ast.walk(one)]
    return any(
        isinstance(one, (ast.Break, ast.Return, ast.Raise, ast.Yield))
        or (isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and one.id in names)
        for one in inside
    )


def memory(failed: Failed) -> str | None:
    """More memory than there is, at a line of the file."""
    if failed.verdict is Verdict.OUT_OF_MEMORY and failed.frames:
        return "this line asks for more memory than there is: look at the sizes that it allocates"
    return None


RULES = (
    not_called,
    not_callable,
    shape_as_number,
    unpacked,
    index,
    division,
    recursion,
    device,
    descriptor,
    own_assertion,
    endless,
    memory,
)
