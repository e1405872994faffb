"""The names that a lab submission may use, as data; the published list is made from it. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def words(text: str) -> tuple[str, ...]:
    """The words of a text, for lists that would fill a page with quotes."""
    return tuple(text.split())


DTYPES = words(
    "float16 half bfloat16 float32 float float64 double float8_e4m3fn float8_e5m2 "
    "bool int8 uint8 int16 int32 int int64 long"
)
ALLOCATE = words("empty empty_like empty_strided zeros zeros_like full")
TORCH = [
    *DTYPES,
    *ALLOCATE,
    *words("Tensor Size device dtype finfo iinfo is_tensor strided contiguous_format preserve_format"),
    *words("no_grad enable_grad inference_mode is_grad_enabled"),
    *words("autograd.Function autograd.function.once_differentiable"),
    *words("cuda.is_available cuda.current_device cuda.device cuda.get_device_capability"),
    "cuda.get_device_properties",
]
TRITON = [
    *words("jit autotune heuristics Config constexpr_function cdiv next_power_of_2 set_allocator"),
    *words("runtime.driver.active.get_current_target runtime.driver.active.get_active_torch_device"),
    "runtime.driver.active.utils.get_device_properties",
]
TYPING = words(
    "Any Callable ClassVar Dict Final Iterable Iterator List Literal Mapping Optional Sequence Set "
    "Tuple Type TypeAlias TypeVar Union"
)

NAMES = frozenset(
    [f"torch.{name}" for name in TORCH]
    + [f"triton.{name}" for name in TRITON]
    + [f"typing.{name}" for name in TYPING]
    + ["itertools.product"]
)
# Modules of which every public name is permitted, but for FORBIDDEN.
OPEN = frozenset(
    words(
        "math triton.language triton.language.math triton.language.extra.libdevice "
        "triton.language.extra.cuda.libdevice"
    )
)
FORBIDDEN = frozenset({"inline_asm_elementwise", "knobs"})
# What a lab opens with the name on the left, every public name of each.
OPTIONAL = {
    "triton.experimental.gluon": tuple(
        "triton.experimental.gluon" + tail
        for tail in (
            "",
            *(".nvidia", ".nvidia.hopper", ".nvidia.blackwell", ".language", ".language.nvidia"),
            *(".language.extra", ".language.extra.libdevice"),
            *(f".language.nvidia.{gpu}" for gpu in ("ampere", "hopper", "blackwell")),
            *(f".language.nvidia.ampere.{part}" for part in ("async_copy", "mbarrier")),
            *(f".language.nvidia.hopper.{part}" for part in ("tma", "mbarrier", "cluster", "async_copy")),
            *(f".language.nvidia.blackwell.{part}" for part in ("tma", "mbarrier", "async_copy", "float2")),
        )
    ),
}
JIT = frozenset({"triton.jit", "triton.experimental.gluon.jit"})
DECORATORS = JIT | {
    "triton.autotune",
    "triton.heuristics",
    "triton.constexpr_function",
    "triton.experimental.gluon.constexpr_function",
    "torch.no_grad",
    "torch.inference_mode",
    "torch.autograd.function.once_differentiable",
}
CONTEXTS = frozenset({"torch.no_grad", "torch.enable_grad", "torch.inference_mode", "torch.cuda.device"})
# Arguments by name; a launch also takes the parameters of the file's own kernels.
KEYWORDS = {
    "triton.Config": frozenset(words("kwargs num_warps num_stages num_ctas maxnreg pre_hook")),
    "triton.autotune": frozenset(
        words("configs key prune_configs_by reset_to_zero restore_value warmup rep pre_hook cache_results")
    ),
}
LAUNCH = frozenset(
    words("num_warps num_stages num_ctas maxnreg enable_fp_fusion launch_cooperative_grid launch_pdl grid")
)

BUILTINS = frozenset(
    words(
        "True False None NotImplemented Ellipsis range len min max abs int float bool str tuple "
        "list dict set "
        "frozenset zip enumerate isinstance sum any all round sorted reversed map filter print repr divmod "
        "pow slice type object staticmethod ValueError TypeError RuntimeError NotImplementedError "
        "AssertionError IndexError KeyError Exception"
    )
)

TENSOR = frozenset(
    words(
        "shape stride numel size dim ndim dtype device element_size itemsize nbytes is_contiguous data_ptr "
        "storage_offset is_cuda is_floating_point requires_grad requires_grad_ new_empty new_empty_strided "
        "new_zeros new_full zero_ fill_ contiguous to detach view view_as reshape t T mT transpose permute "
        "flatten squeeze unsqueeze expand expand_as"
    )
)
AUTOGRAD = frozenset(
    words(
        "apply save_for_backward saved_tensors needs_input_grad mark_non_differentiable set_materialize_grads"
    )
)
LAUNCHER = frozenset(  # of kernels, configs and descriptors
    words(
        "kwargs all_kwargs num_warps num_stages num_ctas maxnreg configs best_config warmup n_regs n_spills "
        "n_max_threads metadata shared _init_handles block_shape base strides layout from_tensor "
        "get_default_for element_bitwidth"
    )
)
MACHINE = frozenset(
    words(
        "multi_processor_count major minor name total_memory L2_cache_size warp_size regs_per_multiprocessor "
        "shared_memory_per_block shared_memory_per_block_optin shared_memory_per_multiprocessor "
        "max_threads_per_multi_processor arch backend index"
    )
)
PYTHON = frozenset(
    words(
        "get items keys values count join startswith endswith lower upper strip replace bit_length "
        "start stop "
        "step"
    )
)
MUTATORS = frozenset(
    words("append extend insert pop remove clear sort reverse update setdefault add discard")
)
FIGURES = frozenset(words("min max eps tiny bits smallest_normal"))  # of finfo; methods of a tensor compute
HOST = TENSOR | AUTOGRAD | LAUNCHER | MACHINE | PYTHON  # MUTATORS only where the function made the list
KERNEL = frozenset(
    words(
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
)
STORES = frozenset(
    words(
        "store store_tensor_descriptor scatter atomic_add atomic_max atomic_min atomic_and atomic_or "
        "atomic_xor atomic_xchg atomic_cas async_copy_shared_to_global async_atomic_add async_atomic_max "
        "async_atomic_min async_scatter store_reduce"
    )
)
NODES = frozenset(
    words(
        "Module FunctionDef ClassDef Return Assign AugAssign AnnAssign For While If With Match Raise Assert "
        "Import ImportFrom Expr Pass Break Continue BoolOp NamedExpr BinOp UnaryOp Lambda IfExp Dict Set "
        "ListComp SetComp DictComp GeneratorExp Compare Call FormattedValue JoinedStr Constant Attribute "
        "Subscript Starred Name List Tuple Slice Load Store And Or Add Sub Mult MatMult Div Mod Pow LShift "
        "RShift BitOr BitXor BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn "
        "comprehension arguments arg keyword alias withitem match_case MatchValue MatchSingleton "
        "MatchSequence MatchMapping MatchClass MatchStar MatchAs MatchOr Yield YieldFrom"
    )
)


# What a lab may open by itself, and not with all of its module.
SINGLE = frozenset(words("torch.library.triton_op torch.library.wrap_triton"))


def open_modules(also_allowed: Iterable[str]) -> frozenset[str]:
    """Modules of which a lab permits every public name."""
    modules = [name for name in also_allowed if name not in SINGLE]
    return OPEN.union(module for name in modules for module in OPTIONAL.get(name, (name,)))


def single_names(also_allowed: Iterable[str]) -> frozenset[str]:
    """Names that a lab permits by themselves."""
    return SINGLE.intersection(also_allowed)


def public(name: str) -> bool:
    """Whether an attribute of a module is meant for others."""
    return not name.startswith("_") and name not in FORBIDDEN


def as_markdown(labs: Mapping[str, Iterable[str]]) -> str:
    """The lists for students; `labs` maps a lab's folder to what it permits beyond the common list."""
    rows = [
        (
            "modules",
            [
                "torch",
                "triton",
                "triton.language",
                "triton.language.extra.libdevice",
                "math",
                "typing",
                "itertools",
            ],
        ),
        ("of `torch`", TORCH),
        ("of `triton`", TRITON),
        ("of `typing`", TYPING),
        ("of `itertools`", ["product"]),
        ("Python's own", sorted(BUILTINS)),
        ("on tensors, in host code", sorted(TENSOR)),
        ("on `ctx`", [*sorted(AUTOGRAD), "and whatever your own methods put there"]),
        ("on kernels, configs and descriptors", sorted(LAUNCHER)),
        ("on the properties of a device", sorted(MACHINE)),
        ("on `torch.finfo(...)`", sorted(FIGURES)),
        ("on numbers, strings, lists, dicts", sorted(PYTHON | MUTATORS)),
        ("on blocks, inside a kernel", sorted(KERNEL)),
        ("named in a launch", ["the kernel's own parameters", *sorted(LAUNCH)]),
        *((f"more in `{lab}`", sorted(names)) for lab, names in labs.items() if names),
    ]
    lines = ["| where | permitted |", "|---|---|"]
    for where, names in rows:
        lines.append(f"| {where} | {', '.join(n if ' ' in n else f'`{n}`' for n in names)} |")
    lines += [
        "",
        "Of `math`, of `triton.language` and of the modules in the rows `more in`, every public name is "
        "permitted, but for "
        + " and ".join(f"`{name}`" for name in sorted(FORBIDDEN))
        + ". Fields of your own frozen dataclasses are permitted too.",
        "",
    ]
    return "\n".join(lines)
