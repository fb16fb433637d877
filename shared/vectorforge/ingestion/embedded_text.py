"""What of a passage is embedded: its text under the titles it stands under."""

_MAX_HEADER_CHARS = 200
"""Of a title, and of a heading path: small models read some 1,200 characters, and most are the passage's."""


def embedded_text(title: str | None, heading: str | None, text: str) -> str:
    """Title, heading path and text, a line each; what is None has none, nor a title the heading begins with.

    A passage seldom repeats what it is about; the titles tell. ``vectorforge.add_terms`` of the database
    indexes the words of the same three, of the first two uncut: an index has no window that they could fill.

    Args:
        title: The document's; the first 200 characters count.
        heading: The passage's, "Install > Linux"; the last 200 characters count, which are the nearest to it.
        text: The passage's.
    """
    named = title if title and not (heading or "").startswith(title) else ""
    header = (named[:_MAX_HEADER_CHARS], (heading or "")[-_MAX_HEADER_CHARS:])
    return "\n".join([*filter(None, header), text])
