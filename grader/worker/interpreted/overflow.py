"""The check for overflow of integers is left out where it reports nothing.

Triton's interpreter repeats every integer sum and product in 64 bits for it. Seen in Triton 3.6 to 3.9.
"""

from __future__ import annotations

import dataclasses

from triton.runtime import interpreter


def leave_out_the_check_for_overflow() -> None:
    """Switch off the interpreter's check for overflow.

    It repeats every integer sum and product in 64 bits, and reports an overflow only with the option `debug`,
    which no launch can turn on.
    """
    builder = getattr(interpreter, "interpreter_builder", None)
    options = getattr(builder, "options", None)
    if builder is None or options is None:
        return
    if getattr(options, "sanitize_overflow", False) and not getattr(options, "debug", True):
        builder.options = dataclasses.replace(options, sanitize_overflow=False)
