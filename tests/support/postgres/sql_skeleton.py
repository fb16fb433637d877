"""SQL reduced to code: comments are removed, literals become ``?``, words are lower-case.

https://www.postgresql.org/docs/current/sql-syntax-lexical.html, with ``standard_conforming_strings`` on.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | --[^\r\n]* )
    | (?P<comment> /\* )
    | (?P<literal>
        [eE]'(?: [^'\\] | \\. | '' )*'?
        | (?: [uU]& | [bBnNxX] )?'(?: [^'] | '' )*'?
        | \$(?P<tag> (?: [^\W\d]\w* )? )\$ .*? (?: \$(?P=tag)\$ | \Z )
        | \$?\d[\w.]*
      )
    | (?: [uU]& )?"(?P<quoted> (?: [^"] | "" )* )"?
    | (?P<word> [^\W\d][\w$]* )
    | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_PLAIN_NAME = re.compile(r"\w+")


def skeletons(sql: str) -> Iterator[str]:
    """Return the skeleton of each statement: words, names, ``?`` and symbols, separated by one space.

    ``SET a='x;y'; SELECT "f"(1) -- done`` gives ``set a = ?`` and ``select "f" ( ? )``. An unclosed
    literal or comment ends with the text.
    """
    pieces: list[str] = []
    for piece in _pieces(sql):
        if piece != ";":
            pieces.append(piece)
        elif pieces:
            yield " ".join(pieces)
            pieces = []
    if pieces:
        yield " ".join(pieces)


def _pieces(sql: str) -> Iterator[str]:
    position = 0
    while match := _TOKEN.match(sql, position):
        position = match.end()
        match match.lastgroup:
            case "comment":
                position = _end_of_comment(sql, position)
            case "literal":
                yield "?"
            case "quoted":  # a name of more than one word could be mistaken for code
                yield f'"{match["quoted"]}"' if _PLAIN_NAME.fullmatch(match["quoted"]) else '"?"'
            case "word" | "symbol":
                yield match[0].lower()


def _end_of_comment(sql: str, position: int) -> int:
    """Return the end of a comment; comments nest in PostgreSQL."""
    depth = 1
    while depth and (edge := _COMMENT_EDGE.search(sql, position)):
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return position if depth == 0 else len(sql)
