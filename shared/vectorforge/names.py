"""Names and titles that stay on one line wherever they are listed or logged."""

from vectorforge.errors import InvalidInputError
from vectorforge.patterns import pattern_of

_CONTROLS = pattern_of("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Line breaks, other control characters, and those that reorder the text around them: a name could forge a
line of a log, or look like another one. Joiners and direction marks (U+200C to U+200F) belong to words."""


def check_name(name: str, field: str = "name") -> None:
    """Reject a name that cannot be shown as it is.

    Raises:
        InvalidInputError: It has a control character.
    """
    if found := _CONTROLS.search(name):
        raise InvalidInputError(
            f"{field} must not contain line breaks, control characters or directional overrides, "
            f"such as U+{ord(found[0]):04X}.",
            field=field,
        )


def one_line(title: str) -> str:
    """Return a title of a file without control characters, its words separated by single spaces."""
    return " ".join(_CONTROLS.sub(lambda match: " " if match[0].isspace() else "", title).split())
