"""Tensors over the memory of other libraries, and the other way round: the DLPack protocol."""

from __future__ import annotations

import ctypes
from typing import Any

from ._enums import ClikaRTError, ClikaRTNotImplementedError, ClikaRTTypeError, ClikaRTValueError
from ._library import check, check_pointer, ffi, lent, let_go, lib, next_token, raise_error, returned, wait
from .devices import Device, DeviceLike
from .tensor import Tensor, wait_writable, wrap

# Capsules are made and opened by functions of Python's own, through an object that is not shared with other users of ctypes,
# who may declare them in their way.
_python = ctypes.PyDLL(None)
_new, _is_valid, _pointer, _name, _rename = (
    _python.PyCapsule_New,
    _python.PyCapsule_IsValid,
    _python.PyCapsule_GetPointer,
    _python.PyCapsule_GetName,
    _python.PyCapsule_SetName,
)
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)

# The names of capsules, which refer to the text and may outlive this module; and of those whose content was taken out.
_NAMES = b"dltensor", b"dltensor_versioned"
_TAKEN = b"used_dltensor", b"used_dltensor_versioned"
for _text in _NAMES + _TAKEN:
    _python.Py_IncRef(ctypes.py_object(_text))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


# A capsule goes when its last owner does, which may be in the middle of an exception or at the interpreter's end, where no
# function of Python can run; so its destructor is one of the library.
lib.clikart_dlpack_set_capsule_functions(
    ffi.cast("int (*)(void*, const char*)", _address(_is_valid)), ffi.cast("void* (*)(void*, const char*)", _address(_pointer))
)
_DESTRUCTOR = int(ffi.cast("uintptr_t", ffi.addressof(lib, "clikart_dlpack_release_capsule")))

#: DLPack's number of the CPU, and of its first device.
CPU = (1, 0)
#: The newest version that is spoken here.
_VERSION = (1, 1)


class ClikaRTBufferError(ClikaRTError, BufferError):
    """Memory that cannot be handed out in the way that was asked for."""


def export(tensor: Tensor, stream: Any, max_version: tuple[int, int] | None, dl_device: tuple[int, int] | None, copy: bool | None) -> Any:
    """The capsule that ``Tensor.__dlpack__`` returns."""
    tensor._check_readable("__dlpack__")
    if stream is not None:
        raise ClikaRTBufferError(f"__dlpack__: the CPU has no streams that others could wait for; stream is {stream!r}")
    if dl_device is not None and tuple(map(int, dl_device)) != CPU:
        raise ClikaRTBufferError(f"__dlpack__: the tensor is on the CPU, {CPU} for DLPack, and was asked for on {tuple(dl_device)}")
    versioned = max_version is not None and max_version[0] >= 1
    handle = tensor._handle  # once: a parameter may take another value meanwhile
    wait(lib.clikart_tensor_wait, handle, who="__dlpack__")
    reversed_ = any(stride < 0 for stride in tensor.stride())
    if copy is False and reversed_:
        raise ClikaRTBufferError(f"__dlpack__: strides {list(tensor.stride())} are negative, which others take for corruption; allow a copy")
    if copy is None:
        copy = reversed_
    if not copy:
        if not versioned and not lib.clikart_tensor_is_writable(handle):
            raise ClikaRTBufferError("__dlpack__: the tensor is read-only, which can only be told to consumers that ask for version 1 or later")
        wait_writable(handle, "__dlpack__")
    managed = check_pointer(lib.clikart_tensor_to_dlpack(handle, versioned, copy))
    return _new(int(ffi.cast("uintptr_t", managed)), _NAMES[versioned], _DESTRUCTOR)


def _capsule_of(producer: Any, copy: bool | None) -> Any:
    """The capsule of an object that has the protocol, in its newest form or in the first."""
    if type(producer).__name__ == "PyCapsule":
        return producer
    if not hasattr(producer, "__dlpack__") or not hasattr(producer, "__dlpack_device__"):
        raise ClikaRTTypeError(f"from_dlpack: expected an object with __dlpack__ and __dlpack_device__, got {type(producer).__name__}")
    kind, number = producer.__dlpack_device__()
    if (int(kind), int(number)) != CPU:
        raise ClikaRTNotImplementedError(f"from_dlpack: the memory is on device {(int(kind), int(number))} of DLPack; only the CPU's, {CPU}, can be used here")
    options: dict[str, Any] = {"max_version": _VERSION}
    if copy is False:
        options["copy"] = False
    try:
        return producer.__dlpack__(**options)
    except TypeError:  # as before version 1, or something else is wrong, which shows again
        return producer.__dlpack__()


def _delete(managed: Any) -> None:
    lib.clikart_dlpack_delete(managed, False)


def _delete_versioned(managed: Any) -> None:
    lib.clikart_dlpack_delete(managed, True)


def from_dlpack(x: Any, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's array, without a copy.

    Writes are seen on both sides, as with :func:`clika_runtime.from_numpy`, and what is read-only there is read-only here.

    Args:
        x: an object with ``__dlpack__`` and ``__dlpack_device__``, such as an array of NumPy or a tensor of torch; or a capsule.
        device: where the result is to live; nothing is moved, so it must be the CPU.
        copy: True: over memory of its own; False: never a copy, which is what the other side is told too.

    Raises:
        TypeError: another object, or a dtype that does not exist here.
        ValueError: an address that is not aligned for the dtype, another device, a capsule that was taken already.
        NotImplementedError: memory of another device.
        BufferError: the other side cannot hand its memory out.
    """
    if returned:
        let_go()
    if device is not None and Device(device) != "cpu":
        raise ClikaRTValueError(f"from_dlpack: memory of the CPU cannot be shared with device {Device(device)}")
    capsule = _capsule_of(x, copy)
    versioned = bool(_is_valid(capsule, _NAMES[True]))
    if not versioned and not _is_valid(capsule, _NAMES[False]):
        name = (_name(capsule) or b"").decode(errors="replace") if type(capsule).__name__ == "PyCapsule" else type(capsule).__name__
        raise ClikaRTValueError(f"from_dlpack: expected a capsule whose content was not taken yet, got '{name}'")
    managed = ffi.cast("void*", _pointer(capsule, _NAMES[versioned]))
    token = next_token()
    handle = lib.clikart_tensor_from_dlpack(managed, versioned, token)
    if not handle:
        raise_error()  # what is in the capsule goes with it
    _rename(capsule, _TAKEN[versioned])
    # The other side's deleter may need Python, so it is called where Python runs: when the token is found to be returned.
    lent[token] = ffi.gc(managed, _delete_versioned if versioned else _delete)
    tensor = wrap(handle)
    return _copied(tensor) if copy else tensor


def _copied(tensor: Tensor) -> Tensor:
    """A copy that is there, whatever the thread does with its calls otherwise: the source may change at once."""
    before = check(lib.clikart_set_mode(lib.CLIKART_MODE_EAGER))
    try:
        copied = wrap(lib.clikart_copy(tensor._handle))
    finally:
        lib.clikart_set_mode(before)
    copied._settle()
    return copied
