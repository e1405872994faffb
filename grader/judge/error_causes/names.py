"""Names that do not exist: what is nearest, by its letters or by what other libraries call it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from grader.course.spec import Verdict
from grader.judge.error_causes.failed import Failed, parameters
from grader.judge.error_causes.known_names import (
    IN_TRITON,
    OF_A_BLOCK,
    OF_A_TENSOR,
    PYTHON,
    nearest,
    public,
)

_MODULE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_OBJECT = re.compile(r"'([\w.]+)' object has no attribute '(\w+)'")
_UNDEFINED = re.compile(r"(?:name ')?(\w+)'? is not defined")
_GLOBAL = re.compile(r"Cannot access global variable (\w+) from within")
_PLAIN_FUNCTION = re.compile(r"Unsupported function referenced: <function (\w+) at")
_UNBOUND = re.compile(r"local variable '(\w+)' (?:where it is not associated|referenced before)")


def missing_in_module(failed: Failed) -> str | None:
    """A function of triton.language, or of another module, that is not there."""
    found = _MODULE.search(failed.text)
    if not found:
        return None
    module, name = found[1], found[2]
    if module != "triton.language":
        near = nearest(name, public(module))
        return f"`{module}` has no `{name}`" + (f"; the nearest name is `{near}`" if near else "")
    return of_triton(name)


def of_triton(name: str) -> str:
    """Say that triton.language has no such name, and what it has instead, if that is known."""
    if name in IN_TRITON:
        return f"there is no `tl.{name}`; {IN_TRITON[name]}"
    near = nearest(name, public("triton.language"))
    if near:
        return f"there is no `tl.{name}`; the name is `tl.{near}`"
    return f"Triton has no function `tl.{name}`: what it would do is to be written out in the kernel"


def missing_in_object(failed: Failed) -> str | None:
    """An attribute that a value does not have."""
    found = _OBJECT.search(failed.text)
    if not found:
        return None
    kind, name = found[1], found[2]
    if (kind == "dtype" and name == "scalar") or kind == "torch.dtype":
        return dtype_of_torch(failed)
    if kind in ("tuple", "list") and (saved := saved_tuple(failed)):
        return saved
    if kind == "NoneType":
        return _of_nothing(failed, name)
    if kind == "tensor" and failed.in_kernel:
        return of_a_block(name)
    if kind == "Tensor":
        return of_a_tensor(name)
    if kind in ("int", "float") and failed.in_kernel and name in ("dtype", "to", "type", "shape"):
        return _of_a_constant_argument(failed, name) if kind == "int" else None
    if kind in ("function", "builtin_function_or_method", "method"):
        return f"a function has no `.{name}`: it is named here without parentheses, so it was not called"
    if kind in ("int", "float", "str", "tuple", "list", "dict") and not failed.in_kernel:
        return f"`.{name}` is asked of {_a(kind)}"
    return None


def _of_a_constant_argument(failed: Failed, name: str) -> str | None:
    """Say that an integer argument that is 1 is compiled as a constant, where a kernel asks it something."""
    kernel = failed.source.function(failed.line)
    for node in failed.nodes(ast.Attribute):
        match node:
            case ast.Attribute(ast.Name(asked), attr) if (
                attr == name and kernel and asked in parameters(kernel)
            ):
                return (
                    f"an argument such as `{asked}` is compiled as a constant where it is 1: then it is a "
                    f"number of Python, which has no `.{name}`"
                )
    return None


def of_a_block(name: str) -> str:
    """Say that a block has no such method."""
    if name in OF_A_BLOCK:
        return f"a block in a kernel has no `.{name}`; {OF_A_BLOCK[name]}"
    near = nearest(name, public("tl.tensor"))
    return f"a block in a kernel has no `.{name}`" + (f"; the nearest name is `.{near}`" if near else "")


def of_a_tensor(name: str) -> str:
    """Say that a tensor of host code has no such method, or that host code may not use it."""
    if name in OF_A_TENSOR:
        return f"host code has no `.{name}` of a tensor; {OF_A_TENSOR[name]}"
    near = nearest(name, public("torch.Tensor"))
    return f"a tensor has no `.{name}`" + (f"; the nearest name is `.{near}`" if near else "")


def dtype_of_torch(failed: Failed) -> str | None:
    """A dtype of torch in a kernel, which wants Triton's."""
    for node in failed.nodes(ast.Attribute):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            has = node.attr in public("triton.language")
            instead = f"`tl.{node.attr}`" if has else "a dtype of `tl`"
            return f"a kernel takes Triton's dtypes: {instead} in place of `torch.{node.attr}`"
    return "a kernel takes Triton's dtypes, such as `tl.float32`, and not those of torch"


def saved_tuple(failed: Failed) -> str | None:
    """The tuple of saved tensors, used as if it were one tensor; found in any function of the stack."""
    for frame in failed.frames:
        function = None if frame.other_file else failed.source.function(frame.line)
        for node in ast.walk(function) if function else ():
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(attr="saved_tensors")):
                    return (
                        f"`ctx.saved_tensors` is a tuple, also with one tensor in it: unpack it, "
                        f"`({name},) = ctx.saved_tensors`"
                    )
    return None


def _of_nothing(failed: Failed, name: str) -> str | None:
    """A value that is None: name the function of this file without a return that it comes from."""
    for node in failed.nodes(ast.Attribute):
        if not isinstance(node, ast.Attribute) or node.attr != name:
            continue
        if isinstance(node.value, ast.Name) and failed.function:
            made = _assigned(failed.function, node.value.id)
            called = made.func.id if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) else ""
            own = failed.source.defined(called)
            if own and not _returns(own):
                return f"`{node.value.id}` is None, because `{called}` has no `return`"
            if node.value.id in parameters(failed.function):
                return f"`{node.value.id}` is None here: the caller gave none"
        return f"`{ast.unparse(node.value)}` is None here, and None has no `.{name}`"
    return None


def _assigned(function: ast.FunctionDef, name: str) -> ast.expr | None:
    found = None
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                found = value
    return found


def _returns(function: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Return) and one.value is not None for one in ast.walk(function))


def _block_of(function: ast.FunctionDef, name: str, line: int) -> ast.For | ast.While | ast.If | None:
    """Return the loop or the condition, before a line, in which a name is first assigned."""
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.While | ast.If) and (node.end_lineno or 0) < line:
            stored = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and _is_stored(one)}
            if name in stored:
                return node
    return None


def _block_before(failed: Failed, here: ast.FunctionDef, name: str) -> ast.For | ast.While | ast.If | None:
    """Return the loop or condition that first assigns a name, in a function or a kernel that its line calls.

    Of a call of another kernel Triton names only the line of the call.
    """
    if name in names_of(here):
        return _block_of(here, name, failed.line)
    called = [call.func.id for call in failed.calls() if isinstance(call.func, ast.Name)]
    for function in (failed.source.kernels[one] for one in called if one in failed.source.kernels):
        used = [
            one.lineno
            for one in ast.walk(function)
            if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load)
        ]
        for line in used if name in names_of(function) else ():
            if (block := _block_of(function, name, line)) is not None:
                return block
    return None


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def undefined(failed: Failed) -> str | None:
    """A name that is defined nowhere, or where this function does not see it."""
    hidden = _GLOBAL.search(failed.text)
    if hidden:
        return (
            f"a kernel sees no plain global such as `{hidden[1]}`: pass it as a parameter, or make it "
            f"a constant, `{hidden[1]} = tl.constexpr(...)`"
        )
    plain = _PLAIN_FUNCTION.search(failed.text)
    if plain:
        return (
            f"the kernel calls `{plain[1]}`, which is a plain Python function: what a kernel calls needs "
            "@triton.jit as well"
        )
    unbound = _UNBOUND.search(failed.text)
    if unbound:
        return f"`{unbound[1]}` is read before a value is assigned to it in this function"
    found = _UNDEFINED.search(failed.text) if failed.kind == "NameError" else None
    if not found:
        return None
    name = found[1]
    modules = {"tl": "import triton.language as tl", "triton": "import triton", "torch": "import torch"}
    if name in {**modules, "math": ""}:
        return f"`{name}` is not imported: `{modules.get(name) or 'import math'}`"
    here = failed.function
    if here is None:
        return None
    block = _block_before(failed, here, name) if failed.verdict is Verdict.COMPILE_ERROR else None
    if block is not None:
        what = "condition" if isinstance(block, ast.If) else "loop"
        return (
            f"`{name}` gets its first value in the {what} of line {block.lineno}: Triton forgets behind "
            f"a {what} what was not assigned before it"
        )
    if name in names_of(here):
        return f"`{name}` is read before a value is assigned to it in this function"
    if name in public("triton.language") and _means_triton(failed, name):
        return f"`{name}` is a name of Triton: `tl.{name}`"
    elsewhere = [one for one in failed.source.functions if one is not here and name in names_of(one)]
    near = nearest(name, names_of(here) | _globals(failed.source.tree) | _long(PYTHON))
    if near:
        return f"`{name}` is not defined; the nearest name here is `{near}`"
    if elsewhere:
        return (
            f"`{name}` is a variable of `{elsewhere[0].name}`, which `{here.name}` does not see: pass it on"
        )
    known = f"neither a parameter of `{here.name}` nor assigned in it"
    return f"`{name}` is {known}" + _near_parameter(name, here)


def _means_triton(failed: Failed, name: str) -> bool:
    """Whether a name is called, or is that of a dtype: any other may be a variable of the student's."""
    import triton.language as tl

    called = any(isinstance(call.func, ast.Name) and call.func.id == name for call in failed.calls())
    return called or isinstance(getattr(tl, name), tl.dtype)


def _long(names: Iterable[str]) -> set[str]:
    """Names that no slip of one letter makes of a student's own short one."""
    return {one for one in names if len(one) > 4}


def _near_parameter(name: str, here: ast.FunctionDef) -> str:
    near = [one for one in parameters(here) if name.startswith(one) and len(name) > len(one)]
    return f"; its parameters are {', '.join(f'`{one}`' for one in parameters(here)[:8])}" if near else ""


def names_of(function: ast.FunctionDef) -> set[str]:
    """The names that a function's parameters and assignments define."""
    made = {
        one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    return made | set(parameters(function))


def _globals(tree: ast.Module) -> set[str]:
    found = {one.name for one in tree.body if isinstance(one, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(one.asname or one.name).split(".")[0] for one in node.names}
        targets = node.targets if isinstance(node, ast.Assign) else ()
        found |= {one.id for one in targets if isinstance(one, ast.Name)}
    return found


def no_such_function(failed: Failed) -> str | None:
    """The file lacks the function that is graded."""
    found = re.search(r"this file has no function (\w+)", f"{failed.kind} {failed.text}")
    if not found or failed.verdict is not Verdict.COMPILE_ERROR:
        return None
    if failed.native:
        named = re.search(rf"\b{found[1]}\s*\(", "\n".join(failed.source.lines))
        missing = f'`extern "C"` is missing before `{found[1]}`, so its name has other letters in the library'
        return missing if named else f"the graded function must be called `{found[1]}`"
    names = {
        one.name
        for one in failed.source.tree.body
        if isinstance(one, ast.FunctionDef) and one.name not in failed.source.kernels
    }
    called = {
        one.func.id
        for one in ast.walk(failed.source.tree)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
    }
    left = sorted(names - called)
    near = nearest(found[1], names) or (left[0] if len(left) == 1 else None)
    return f"the graded function must be called `{found[1]}`" + (f", not `{near}`" if near else "")


def _a(kind: str) -> str:
    words = {
        "int": "a whole number",
        "float": "a number",
        "str": "a text",
        "tuple": "a tuple",
        "list": "a list",
    }
    return words.get(kind, f"a {kind}")


def removed(failed: Failed) -> str | None:
    """A part of the language that newer versions of Triton no longer have."""
    if "Block pointers have been removed" not in failed.text:
        return None
    instead = "`tl.make_tensor_descriptor`, or plain pointers with a mask"
    return f"this version of Triton has no block pointers: write {instead}"


RULES = (removed, missing_in_module, missing_in_object, undefined, no_such_function)
