"""Fast validation of float32 vectors: checking number by number takes as long as all other work on a chunk.

A module of its own because the sibling packages ``embedding`` and ``vectorstore`` both use it.
"""

import sys
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Final

_LARGEST_EXPONENT: Final = 40
_SMALLEST_EXPONENT: Final = -40
_EXPONENT: Final = 0x7F800000
_ABOVE: Final = 0x80000000
_BIAS: Final = 127
"""https://en.wikipedia.org/wiki/Single-precision_floating-point_format"""


if TYPE_CHECKING:
    _Floats = array[float]
else:
    _Floats = array  # not subscriptable before Python 3.12


class ValidatedVector(_Floats):
    """Vector that passed ``fast_is_finite`` and must not change; it is not validated again."""

    __slots__ = ()


def fast_is_finite(vector: "array[float]") -> bool:
    """Return True if all numbers are finite and the vector's norm is between 1e-12 and 1e14.

    Reads the vector as one integer of 32 bits per number, and adds to all exponents at once an offset that
    makes too large ones, then large enough ones, overflow into their (cleared) sign bit.

    Args:
        vector: Of type "f", up to 16,000 numbers.

    Returns:
        False for all other vectors and a few valid ones, which need a check number by number.
    """
    exponents, above, too_large, large_enough = _lanes(len(vector))
    # both byte orders preserve the bytes of each number
    numbers = int.from_bytes(vector, sys.byteorder) & exponents
    return not (numbers + too_large) & above and bool((numbers + large_enough) & above)


@lru_cache(maxsize=8)
def _lanes(count: int) -> tuple[int, int, int, int]:
    steps = ((256 - _BIAS - exponent) << 23 for exponent in (_LARGEST_EXPONENT, _SMALLEST_EXPONENT))
    return tuple(  # type: ignore[return-value]  # mypy does not count a generator
        int.from_bytes(array("I", [lane]) * count, sys.byteorder) for lane in (_EXPONENT, _ABOVE, *steps)
    )
