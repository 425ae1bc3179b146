"""Where random operators draw from."""

from __future__ import annotations

from typing import Any

from ._enums import ClikaRTOverflowError, ClikaRTTypeError
from ._library import NULL, check, check_pointer, ffi, lib
from ._refused import shown
from .sizes import plain

_ALL_BITS = 2**64 - 1


def _seed(value: int, who: str = "manual_seed") -> int:
    value = plain(value)
    if not isinstance(value, int):
        raise ClikaRTTypeError(f"{who}: seed must be an int, got {shown(value)}")
    return value & _ALL_BITS  # negative ones too, as two's complement


class Generator:
    """A sequence of random numbers of its own: the same from the same seed, on any machine and for any number of threads.

    A call reserves the numbers it draws when it is made.  Any thread may use one.
    """

    __slots__ = ("_handle",)

    _handle: Any

    def __init__(self, seed: int = 0) -> None:
        self._handle = ffi.gc(check_pointer(lib.clikart_generator_create(_seed(seed, "Generator"))), lib.clikart_generator_release)

    def manual_seed(self, seed: int) -> Generator:
        """Starts the sequence of a seed; returns the generator."""
        check(lib.clikart_generator_set_state(self._handle, _seed(seed), 0))
        return self

    def get_state(self) -> tuple[int, int]:
        """The seed, and how many blocks of four 32-bit numbers were given away."""
        return _state(self._handle)

    def set_state(self, state: tuple[int, int]) -> None:
        """Goes on from where :meth:`get_state` was called."""
        check(lib.clikart_generator_set_state(self._handle, *_words(state, "set_state")))

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_state, (self.get_state(),)


def _of_state(state: tuple[int, int]) -> Generator:
    """What was pickled."""
    generator = Generator()
    generator.set_state(state)
    return generator


def _words(state: tuple[int, int], who: str) -> tuple[int, int]:
    """The seed and the offset of a state."""
    if not isinstance(state, (tuple, list)) or len(state) != 2 or not all(isinstance(word, int) for word in state):
        raise ClikaRTTypeError(f"{who}: state must be a seed and an offset, as get_rng_state() and get_state() return them, got {shown(state)}")
    seed, offset = state
    if not (0 <= seed <= _ALL_BITS and 0 <= offset <= _ALL_BITS):
        raise ClikaRTOverflowError(f"{who}: seed and offset are from 0 to 2**64 - 1, got {shown(seed)} and {shown(offset)}")
    return seed, offset


def _state(handle: Any) -> tuple[int, int]:
    words = ffi.new("uint64_t[2]")
    check(lib.clikart_generator_state(handle, words, words + 1))
    return words[0], words[1]


def manual_seed(seed: int) -> None:
    """Seeds the process's own generator, which random operators draw from unless they are given another."""
    check(lib.clikart_generator_set_state(NULL, _seed(seed), 0))


def get_rng_state() -> tuple[int, int]:
    """The state of the process's own generator; see :meth:`Generator.get_state`."""
    return _state(NULL)


def set_rng_state(state: tuple[int, int]) -> None:
    """The process's own generator goes on from a state."""
    check(lib.clikart_generator_set_state(NULL, *_words(state, "set_rng_state")))
