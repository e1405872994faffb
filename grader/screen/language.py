"""The language of a lab file, as data: forms, names and attributes. Whatever is not here is refused.

policy.py applies it, `as_markdown` prints it for labs/LANGUAGE.md, and a fuzzer in the tests writes programs
in it. Every attribute is harmless on any value that such a program can hold. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def words(text: str) -> frozenset[str]:
    """The words of a text, for lists that would fill a page with quotes."""
    return frozenset(text.split())


# Forms: what is written, and the nodes of Python's syntax tree that it consists of.
STATEMENTS = {
    "`import torch`, `import triton.language as tl`, `from triton import cdiv`": "Import ImportFrom alias",
    "`name = value`, `a, b = values`, `name: int = 1`, `name += value`": "Assign AnnAssign AugAssign",
    "a call or another expression on a line of its own": "Expr",
    "`if`, `for`, `while`, `break`, `continue`, `pass`": "If For While Break Continue Pass",
    "`def f(x, n: int, *, out=None):` with constants as defaults; `return`, `yield`": "FunctionDef arguments "
    "arg Return Yield",
    "`assert condition, f'text {value}'`": "Assert",
    "`raise ValueError('text')`": "Raise",
    "`with torch.cuda.device(x.device):`, `with torch.no_grad():`": "With withitem",
    "`class F(torch.autograd.Function):` with `@staticmethod` functions": "ClassDef",
    "`class Tile(typing.NamedTuple):` with constants in capitals, `BLOCK_M: int = 64`": "",
}
EXPRESSIONS = {
    "numbers, texts, f-strings, `True`, `None`": "Constant JoinedStr FormattedValue",
    "names, attributes of the lists below, `x[i]`, `x[a:b]`": "Name Attribute Subscript Slice Load Store",
    "tuples, lists, sets, dicts, `*values`, `**options`": "Tuple List Set Dict Starred keyword",
    "comprehensions; `zip` and others that are used up stand in a `for` or a call": "ListComp SetComp "
    "DictComp GeneratorExp comprehension",
    "operators on numbers; in a kernel, on blocks": "BoolOp BinOp UnaryOp Compare And Or Add Sub Mult "
    "MatMult Div Mod Pow LShift RShift BitOr BitXor BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt LtE Gt "
    "GtE Is IsNot In NotIn",
    "`one if condition else other`, `(name := value)`, `lambda meta: (n,)`": "IfExp NamedExpr Lambda",
    "`f(x)` by the function's own name, `kernel[grid](x, BLOCK=64)`, `F.apply(x)`, `x.size(0)`": "Call",
}
NODES = words(" ".join([*STATEMENTS.values(), *EXPRESSIONS.values()]))
ANNOTATION = words("Name Attribute Subscript Tuple List BinOp BitOr Constant Load")
INSTEAD = {
    "Try": "`try` is not permitted; an error is to be seen, so let it be raised",
    "TryStar": "`try` is not permitted; an error is to be seen, so let it be raised",
    "Delete": "`del` is not permitted; a local name ends with its function",
    "Global": "`global` is not permitted; pass values as arguments, and keep no state between calls",
    "Nonlocal": "`nonlocal` is not permitted; pass values as arguments, and keep no state between calls",
    "Match": "`match` is not permitted; write if, elif and else",
    "YieldFrom": "`yield from` is not permitted; write a loop with yield",
}

INSTEAD_OF_NAMES = {
    "filter": "write a comprehension, [x for x in values if wanted(x)]",
    "map": "write a comprehension, [function(x) for x in values]",
    "dataclasses": "write a typing.NamedTuple of constants in capitals",
}

# Names of modules.
DTYPES = words(
    "float16 half bfloat16 float32 float float64 double float8_e4m3fn float8_e5m2 bool int8 uint8 int16 "
    "int32 int int64 long"
)
ALLOCATE = words("empty empty_like empty_strided zeros zeros_like full")
TORCH = (
    DTYPES
    | ALLOCATE
    | words(
        "Tensor Size device dtype finfo iinfo is_tensor strided contiguous_format preserve_format no_grad "
        "enable_grad inference_mode is_grad_enabled autograd.Function autograd.function.once_differentiable "
        "cuda.is_available cuda.current_device cuda.device cuda.get_device_capability "
        "cuda.get_device_properties"
    )
)
TRITON = words(
    "jit autotune heuristics Config constexpr_function cdiv next_power_of_2 set_allocator "
    "runtime.driver.active.get_current_target runtime.driver.active.get_active_torch_device "
    "runtime.driver.active.utils.get_device_properties"
)
TYPING = words(
    "Any Callable Dict Final Iterable Iterator List Literal Mapping NamedTuple Optional Sequence Set Tuple "
    "Union"
)
NAMES = frozenset(
    {f"torch.{name}" for name in TORCH}
    | {f"triton.{name}" for name in TRITON}
    | {f"typing.{name}" for name in TYPING}
    | {"itertools.product"}
)
NEVER_CALLED = frozenset({"torch.Tensor", "torch.dtype", "torch.autograd.Function"})  # and those of typing
# Modules of which every public name is permitted, but for FORBIDDEN and for the modules inside of them.
OPEN = words(
    "math triton.language triton.language.math triton.language.extra.libdevice "
    "triton.language.extra.cuda.libdevice"
)
FORBIDDEN = words(
    "inline_asm_elementwise knobs core extra math random semantic standard target_info ir gluon_ir stdlib "
    "ttgl tl amd nvidia language libdevice ampere hopper blackwell async_copy cluster mbarrier tma float2 "
    # Python's, or helpers of the compiler: a kernel needs none, and str_to_ty evaluates a text.
    "Any List Optional T Tuple TYPE_CHECKING annotations wraps dataclass builtin aggregate must_use_result "
    "str_to_ty unflatten_ir_values canonicalize_dtype get_primitive_bitwidth validate_block_shape "
    "condition constexpr_type tensor_descriptor_type tuple_type base_type base_value PropagateNan"
)
# What a lab opens with the name on the left, every public name of each.
_GLUON = "triton.experimental.gluon"
OPTIONAL = {
    _GLUON: tuple(
        _GLUON + tail
        for tail in (
            *("", ".nvidia", ".nvidia.hopper", ".nvidia.blackwell", ".language", ".language.nvidia"),
            *(".language.extra", ".language.extra.libdevice"),
            *(f".language.nvidia.{gpu}" for gpu in ("ampere", "hopper", "blackwell")),
            *(f".language.nvidia.ampere.{part}" for part in ("async_copy", "mbarrier")),
            *(f".language.nvidia.hopper.{part}" for part in ("tma", "mbarrier", "cluster", "async_copy")),
            *(f".language.nvidia.blackwell.{part}" for part in ("tma", "mbarrier", "async_copy", "float2")),
        )
    ),
}
# What a lab may open by itself, and not with all of its module.
SINGLE = words("torch.library.triton_op torch.library.wrap_triton")
JIT = frozenset({"triton.jit", "triton.experimental.gluon.jit"})
TUNERS = frozenset({"triton.autotune", "triton.heuristics"})
WRAPPERS = JIT | TUNERS  # triton.autotune(...)(kernel)
DECORATORS = WRAPPERS | words(
    "triton.constexpr_function triton.experimental.gluon.constexpr_function torch.no_grad "
    "torch.inference_mode torch.autograd.function.once_differentiable"
)
CONTEXTS = words("torch.no_grad torch.enable_grad torch.inference_mode torch.cuda.device")
# Arguments by name; a launch also takes the parameters of the file's own kernels.
KEYWORDS = {
    "triton.Config": words("kwargs num_warps num_stages num_ctas maxnreg pre_hook"),
    "triton.autotune": words(
        "configs key prune_configs_by reset_to_zero restore_value warmup rep pre_hook cache_results"
    ),
}
LAUNCH = words(
    "num_warps num_stages num_ctas maxnreg enable_fp_fusion launch_cooperative_grid launch_pdl grid"
)
ERRORS = words("ValueError TypeError RuntimeError NotImplementedError AssertionError IndexError KeyError")
BUILTINS = ERRORS | words(
    "range len min max abs int float bool str tuple list dict set frozenset zip enumerate isinstance sum any "
    "all round sorted reversed print repr divmod pow slice staticmethod"
)
COMPUTING = words(
    "abs all any divmod max min pow round sorted sum"
)  # with tensors, too, so they are only called

# Attributes, by what they are taken of.
TENSOR = words(
    "shape stride numel size dim ndim dtype device element_size itemsize nbytes is_contiguous data_ptr "
    "storage_offset is_cuda is_floating_point requires_grad requires_grad_ new_empty new_empty_strided "
    "new_zeros new_full zero_ fill_ contiguous to detach view view_as reshape t T mT transpose permute "
    "flatten squeeze unsqueeze expand expand_as"
)
FILLS = words("zero_ fill_ requires_grad_")  # they change a tensor
CTX = words("save_for_backward saved_tensors needs_input_grad mark_non_differentiable set_materialize_grads")
CTX_OWN = words(  # what autograd itself puts there, for no student's value
    "apply backward dirty_tensors forward generate_vmap_rule is_traceable jvp mark_dirty mark_shared_storage "
    "materialize_grads maybe_clear_saved_tensors metadata name next_functions non_differentiable "
    "register_hook register_prehook save_for_forward saved_for_forward saved_variables setup_context to_save "
    "vjp vmap apply_boxed apply_jvp requires_grad"
)
LAUNCHER = words(  # kernels, configs and descriptors
    "kwargs all_kwargs num_warps num_stages num_ctas maxnreg configs best_config warmup n_regs n_spills "
    "n_max_threads metadata shared _init_handles block_shape base strides layout from_tensor "
    "get_default_for element_bitwidth"
)
MACHINE = words(
    "multi_processor_count major minor name total_memory L2_cache_size warp_size regs_per_multiprocessor "
    "shared_memory_per_block shared_memory_per_block_optin shared_memory_per_multiprocessor "
    "max_threads_per_multi_processor arch backend index type"
)
PYTHON = words(
    "get items keys values count join startswith endswith lower upper strip replace bit_length start stop "
    "step"
)
MUTATORS = words("append extend insert pop remove clear sort reverse update setdefault add discard")
FIGURES = words("min max eps tiny bits smallest_normal")  # of finfo; methods of a tensor compute
HOST = TENSOR | LAUNCHER | MACHINE | PYTHON  # MUTATORS only where the function made the list
KERNEL = words(
    "to cast dtype type shape numel element_ty primitive_bitwidth itemsize value T trans load store "
    "gather scatter atomic_add atomic_max atomic_min atomic_and atomic_or atomic_xor atomic_xchg "
    "atomic_cas broadcast_to reshape view permute expand_dims split join ravel flip slice index advance "
    "sum max min argmax argmin xor_sum reduce reduce_or associative_scan cumsum cumprod histogram sort "
    "sigmoid softmax exp exp2 log log2 sqrt rsqrt sin cos erf abs floor ceil logical_and logical_or "
    "is_floating is_fp8 is_fp16 is_bf16 is_fp32 is_fp64 is_int is_int8 is_int16 is_int32 is_int64 "
    "is_int_signed is_int_unsigned is_bool is_ptr is_block is_constexpr int_bitwidth fp_mantissa_width "
    "nbytes scalar block_type block_shape strides layout shape_desc nbytes_per_cta num_warps "
    "keys values name arrive wait expect init invalidate set get_default_for get_reg_layout store_reduce "
    "prefetch parent element_bitwidth swizzle_byte_width rank"
)
STORES = words(
    "store store_tensor_descriptor scatter atomic_add atomic_max atomic_min atomic_and atomic_or atomic_xor "
    "atomic_xchg atomic_cas async_store async_copy_shared_to_global async_atomic_add async_atomic_max "
    "async_atomic_min async_scatter store_reduce"
)


def open_modules(also_allowed: Iterable[str]) -> frozenset[str]:
    """Modules of which a lab permits every public name."""
    modules = [name for name in also_allowed if name not in SINGLE]
    return OPEN.union(module for name in modules for module in OPTIONAL.get(name, (name,)))


def public(name: str) -> bool:
    """Whether an attribute of a module is meant for others."""
    return not name.startswith("_") and name not in FORBIDDEN


def as_markdown(labs: Mapping[str, Iterable[str]]) -> str:
    """The page for students; `labs` maps a lab's folder to what it permits beyond the common list."""
    rows = [
        ("Modules", words("torch triton math typing itertools") | OPEN),
        ("`torch.`", TORCH),
        ("`triton.`", TRITON),
        ("`typing.`, in annotations", TYPING),
        ("Python's own, and `itertools`", BUILTINS | {"itertools.product"}),
        ("Of a tensor, in host code", TENSOR),
        ("Of `ctx`, with what your methods put there", CTX),
        ("Of kernels, configs and descriptors", LAUNCHER),
        ("Of a device and its properties", MACHINE),
        ("Of `torch.finfo(...)`", FIGURES),
        ("Of numbers, texts, lists and dicts", PYTHON | MUTATORS),
        ("Of a block, in a kernel", KERNEL),
        ("In a launch, with the kernel's parameters", LAUNCH),
        *((f"More in {lab}", frozenset(more)) for lab, more in labs.items() if more),
    ]
    lines = ["**Statements**", "", *(f"* {form}" for form in STATEMENTS)]
    lines += ["", "**Expressions**", "", *(f"* {form}" for form in EXPRESSIONS)]
    lines += ["", "**Names**", ""]
    lines += [f"* {where}: {', '.join(f'`{name}`' for name in sorted(found))}." for where, found in rows]
    return "\n".join([*lines, ""])
