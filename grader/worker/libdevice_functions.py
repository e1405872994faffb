"""The functions of CUDA's libdevice on arrays of NumPy.

Those of real numbers compute in fp64, whatever the operands have, so that fp32 results are rounded once.
libdevice has errors of a few units in the last place, and the `fast_` functions larger ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Function = Callable[..., Array]  # of the dtype of the result, and the operands


def function_of(symbol: str) -> Function | None:
    """Return the function of a symbol such as `__nv_exp`, `__nv_expf` or `__nv_fast_expf`."""
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    return next((FUNCTIONS[one] for one in (name, name[:-1]) if one in FUNCTIONS), None)


def _real(function: Callable[..., Array]) -> Function:
    """Return a function that computes in fp64."""
    return lambda _, *values: function(*(value.astype(np.float64) for value in values))


def _each(function: Callable[..., float]) -> Function:
    """Return a function of Python's math, which computes one number at a time."""

    def of_one(*values: float) -> float:
        try:
            return function(*values)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return _real(np.vectorize(of_one, otypes=[np.float64]))


def _to_int(rounded: Callable[[Array], Array]) -> Function:
    """Return a conversion to integers, which ends at the limits of the type; NaN gives 0."""

    def converted(dtype: Any, value: Array) -> Array:
        limits = np.iinfo(dtype)
        whole = np.nan_to_num(rounded(value.astype(np.float64)), nan=0.0)
        inside = np.clip(whole, float(limits.min), np.nextafter(float(limits.max) + 1.0, 0.0)).astype(dtype)
        return np.where(whole >= float(limits.max), limits.max, inside)

    return converted


def _inverse_erf(value: float) -> float:
    if not -1.0 < value < 1.0:
        return math.copysign(math.inf, value) if abs(value) == 1.0 else math.nan
    guess = NormalDist().inv_cdf((value + 1.0) / 2.0) / math.sqrt(2.0)
    slope = 2.0 / math.sqrt(math.pi) * math.exp(-guess * guess)
    return guess - (math.erf(guess) - value) / slope if slope else guess


def _inverse_of_the_normal(value: float) -> float:
    if value in (0.0, 1.0):
        return math.copysign(math.inf, value - 0.5)
    return NormalDist().inv_cdf(value)


def _away_from_zero(value: Array) -> Array:
    return np.copysign(np.floor(np.abs(value) + 0.5), value)


def _high_half(_: Any, first: Array, second: Array) -> Array:
    bits = first.dtype.itemsize * 8
    product = np.asarray(first, dtype=object) * np.asarray(second, dtype=object)
    return np.asarray(product >> bits).astype(first.dtype)


def _leading_zeros(_: Any, value: Array) -> Array:
    bits = value.dtype.itemsize * 8
    mask = (1 << bits) - 1
    return np.vectorize(lambda one: bits - (int(one) & mask).bit_length(), otypes=[np.int32])(value)


def _ones(_: Any, value: Array) -> Array:
    mask = (1 << value.dtype.itemsize * 8) - 1
    return np.vectorize(lambda one: (int(one) & mask).bit_count(), otypes=[np.int32])(value)


def _first_one(_: Any, value: Array) -> Array:
    return np.vectorize(lambda one: (int(one) & -int(one)).bit_length(), otypes=[np.int32])(value)


def _bits(dtype: Any, value: Array) -> Array:
    return np.ascontiguousarray(value).view(dtype)


def _low_24(value: Array) -> Array:
    wide = value.astype(np.int64) & 0xFFFFFF
    return np.where((wide >> 23) & (value.dtype.kind == "i"), wide - (1 << 24), wide)


REAL: dict[str, Callable[..., Array]] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil,
    "copysign": np.copysign, "cos": np.cos, "cosh": np.cosh,
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2.0)),
    "exp": np.exp, "exp10": lambda x: np.power(10.0, x), "exp2": np.exp2, "expm1": np.expm1, "fabs": np.abs,
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(np.isnan(x + y), np.nan, 0.0)),
    "fdividef": np.divide, "floor": np.floor, "fma": lambda x, y, z: x * y + z,
    "fmod": np.fmod, "hypot": np.hypot, "ldexp": lambda x, n: np.ldexp(x, n.astype(np.int64)),
    "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2,
    "logb": lambda x: np.where(x == 0.0, -np.inf, np.frexp(x)[1] - 1.0), "nearbyint": np.rint,
    "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "norm4d": lambda x, y, z, w: np.sqrt(x * x + y * y + z * z + w * w),
    "pow": np.power, "powi": np.power, "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "rhypot": lambda x, y: 1.0 / np.hypot(x, y), "rint": np.rint,
    "rnorm3d": lambda x, y, z: 1.0 / np.sqrt(x * x + y * y + z * z),
    "rnorm4d": lambda x, y, z, w: 1.0 / np.sqrt(x * x + y * y + z * z + w * w),
    "round": _away_from_zero, "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "saturatef": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0.0, 1.0),
    "scalbn": lambda x, n: np.ldexp(x, n.astype(np.int64)), "sin": np.sin, "sinh": np.sinh,
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2.0)), "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
    "trunc": np.trunc,
}  # fmt: skip
EACH: dict[str, Callable[..., float]] = {
    "erf": math.erf, "erfc": math.erfc, "erfcinv": lambda x: _inverse_erf(1.0 - x), "erfinv": _inverse_erf,
    "lgamma": math.lgamma, "normcdf": lambda x: math.erfc(-x / math.sqrt(2.0)) / 2.0,
    "normcdfinv": _inverse_of_the_normal, "remainder": math.remainder, "tgamma": math.gamma,
}  # fmt: skip
OTHERS: dict[str, Function] = {
    "clz": _leading_zeros, "clzll": _leading_zeros, "popc": _ones, "popcll": _ones, "ffs": _first_one,
    "ffsll": _first_one, "llabs": lambda _, x: np.abs(x), "mulhi": _high_half, "umulhi": _high_half,
    "mul64hi": _high_half, "umul64hi": _high_half, "mul24": lambda _, x, y: _low_24(x) * _low_24(y),
    "umul24": lambda _, x, y: _low_24(x) * _low_24(y),
    "isnan": lambda _, x: np.isnan(x), "isinf": lambda _, x: np.isinf(x),
    "finite": lambda _, x: np.isfinite(x), "isfinite": lambda _, x: np.isfinite(x),
    "signbit": lambda _, x: np.signbit(x), "nextafter": lambda _, x, y: np.nextafter(x, y),
    "ilogb": lambda _, x: np.frexp(x)[1] - 1,
    "llrint": _to_int(np.rint), "llround": _to_int(_away_from_zero),
}  # fmt: skip
ROUNDED = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
# Sums, products, quotients and roots that are rounded to the nearest number.
NEAREST: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x),
}  # fmt: skip


def _conversions() -> dict[str, Function]:
    found: dict[str, Function] = {}
    for end, rounded in ROUNDED.items():
        for start in ("float", "double"):
            for whole in ("int", "uint", "ll", "ull"):
                found[f"{start}2{whole}_{end}"] = _to_int(rounded)
    for whole in ("int", "uint", "ll", "ull"):
        for real in ("float", "double"):
            found[f"{whole}2{real}_rn"] = lambda dtype, value: value.astype(dtype)
    for name in ("float_as_int", "float_as_uint", "int_as_float", "uint_as_float"):
        found[name] = _bits
    for name in ("double_as_longlong", "longlong_as_double"):
        found[name] = _bits
    found["double2float_rn"] = lambda dtype, value: value.astype(dtype)
    return found


FUNCTIONS: dict[str, Function] = {
    **{name: _real(function) for name, function in REAL.items()},
    **{name: _each(function) for name, function in EACH.items()},
    **{f"{kind}{name}_rn": _real(function) for name, function in NEAREST.items() for kind in "fd"},
    **{name: _real(REAL["fma"]) for name in ("fma_rn", "fmaf_rn")},
    **OTHERS,
    **_conversions(),
}
