"""Files that are no Python: the message of Python's parser in plain words."""

from __future__ import annotations

import re

from grader.judge.error_causes.failed import Failed

WORDS = (  # patterns of Python's messages, and what they say
    (
        r"inconsistent use of tabs",
        "this line is indented with a tab, and others with blanks: take blanks everywhere",
    ),
    (
        r"unindent does not match",
        "this line is indented by another number of blanks than every block around it",
    ),
    (r"unexpected indent", "this line is indented further than the one before, and nothing asks for it"),
    (r"expected an indented block", "a line that ends in `:` needs an indented line below it"),
    (r"expected ':'", "the `:` at the end of this line is missing"),
    (r"'(.)' was never closed", "this `{0}` is never closed"),
    (r"unmatched '(.)'", "this `{0}` closes nothing: there is one too many, or one of another kind is open"),
    (
        r"closing parenthesis '(.)' does not match opening parenthesis '(.)'",
        "`{0}` closes a `{1}`: each kind closes its own",
    ),
    (r"Maybe you meant '=='", "`=` assigns a value; two values are compared with `==`"),
    (r"unterminated (?:triple-quoted )?(?:f-)?string", "the closing quote of a text is missing"),
    (r"Perhaps you forgot a comma", "a comma, or an operator, is missing between two values"),
    (r"cannot assign to (.+?)(?: here|$)", "the left side of `=` is no name: it is {0}"),
    (r"'return' outside function", "this `return` is in no function: it may be indented too little"),
    (r"'(break|continue)' (?:outside|not properly)", "this `{0}` is in no loop"),
    (r"positional argument follows keyword", "values by place come before values by name"),
    (r"keyword argument repeated: (\w+)", "`{0}` is given twice in this call"),
    (r"duplicate argument '(\w+)'", "two parameters have the name `{0}`"),
    (
        r"(?:parameter|argument) without a default follows",
        "a parameter without a default stands behind one with a default",
    ),
    (
        r"invalid non-printable character|invalid character",
        "this line has a character that is no Python, perhaps copied from a page",
    ),
    (r"leading zeros in decimal", "a number begins with 0"),
    (r"unexpected EOF|was never closed", "the file ends before a bracket or a block is closed"),
    (r"forgot 'self' or 'cls'|invalid decimal literal", "a name cannot begin with a digit"),
)


def python(failed: Failed) -> str | None:
    """What the parser says, in plain words."""
    if failed.kind not in ("SyntaxError", "IndentationError", "TabError"):
        return None
    for pattern, words in WORDS:
        found = re.search(pattern, failed.text)
        if found:
            return words.format(*found.groups())
    before = failed.source.lines[failed.line - 2] if failed.line > 1 else ""
    if failed.text == "invalid syntax" and _opens(before):
        return "this line or the one before is no Python: a bracket of the line before may be open"
    return None


def _opens(line: str) -> bool:
    return any(line.count(one) > line.count(other) for one, other in ("()", "[]", "{}"))


RULES = (python,)
