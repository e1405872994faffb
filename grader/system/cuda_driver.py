"""Calls of the CUDA driver that torch does not offer, through ctypes."""

from __future__ import annotations

import ctypes

# CUdevice_attribute
HOST_REGISTER_SUPPORTED, READ_ONLY_HOST_REGISTER_SUPPORTED, MPS_ENABLED = 99, 113, 133


def call(function: str, *args: object) -> None:
    """Call a function of the driver; RuntimeError with the driver's name of the error."""
    library = ctypes.CDLL("libcuda.so.1")
    code = getattr(library, function)(*args)
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorName(code, ctypes.byref(text))
        raise RuntimeError(f"{function}: {(text.value or b'unknown error').decode()}")


def attribute(number: int) -> int:
    """Return an attribute of the current device, 0 if this driver does not know it."""
    device, value = ctypes.c_int(), ctypes.c_int()
    call("cuCtxGetDevice", ctypes.byref(device))
    try:
        call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), device)
    except RuntimeError:
        return 0
    return value.value
