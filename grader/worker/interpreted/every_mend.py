"""All mends of Triton's interpreter, for a process that runs kernels in it."""

from __future__ import annotations

from grader.worker.interpreted import (
    arguments,
    comparisons,
    configs,
    constants,
    constexpr_functions,
    known_builtins,
    known_types,
    launches,
    libdevice,
    overflow,
    own_names,
    reductions,
    repeated,
    rounding,
    syntax,
    warm_kernels,
)


def apply() -> None:
    """Mend the interpreter of this process; once, with TRITON_INTERPRET=1 and before a kernel is defined."""
    known_builtins.remember_builtins()
    known_types.remember_types()
    constexpr_functions.give_constants_only_to_constexpr_functions()
    overflow.leave_out_the_check_for_overflow()
    arguments.pass_numbers_as_the_compiler_does()
    constants.let_blocks_compute_with_constants()
    syntax.read_kernels_as_the_compiler_does()
    own_names.leave_a_file_its_own_names()
    comparisons.give_bits()
    launches.replace_once_for_a_launch()
    repeated.repeat_what_types_decide()
    reductions.combine_whole_blocks()
    rounding.round_as_a_gpu_does()
    configs.pass_over_refused_configs()
    warm_kernels.answer_for_compiled_kernels()
    libdevice.compute_functions_of_libdevice()
