"""The expressions of a file whose value depends on the dtype of a tensor: found in its text."""

from __future__ import annotations

import ast

# What differs between dtypes: a dtype that a tensor is made with, or a value converted to, is no such thing.
SIZES = {"itemsize", "primitive_bitwidth", "nbytes"}
FUNCTIONS = {"element_size", "finfo", "iinfo"}
DTYPES = {"dtype", "element_ty"}


def by_dtype(text: str, function: str) -> dict[int, str]:
    """Return the expressions that differ between dtypes, of what a function runs, by their line.

    Empty if the file is no Python, or has no such function.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    reached, asked = dict[str, ast.FunctionDef](), [function]
    while asked:
        name = asked.pop()
        if name in functions and name not in reached:
            reached[name] = functions[name]
            asked += [one.id for one in ast.walk(functions[name]) if isinstance(one, ast.Name)]
    nodes = [node for one in reached.values() for node in ast.walk(one)]
    return {one.lineno: ast.unparse(one) for one in nodes if isinstance(one, ast.expr) and _differs(one)}


def _differs(node: ast.expr) -> bool:
    match node:
        case ast.Call(ast.Attribute(_, name)):
            return name in FUNCTIONS
        case ast.Attribute(_, name):
            return name in SIZES
        case ast.Compare(left, _, others):
            return any(isinstance(one, ast.Attribute) and one.attr in DTYPES for one in (left, *others))
        case ast.Subscript(_, ast.Attribute(_, name)):
            return name in DTYPES
    return False
