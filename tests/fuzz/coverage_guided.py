"""One parser under libFuzzer (atheris): ``python -m tests.fuzz.coverage_guided PARSER CORPUS [its options]``.

libFuzzer ends the process at the first finding, with the exception on stderr and the input in a file.
"""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_JSON_SHARE: Final = 0.7
"""Share of structural mutations of JSON. Changed bytes rarely leave it valid."""
_ODD: Final[Sequence[Any]] = (
    None,
    True,
    0,
    -1,
    5,
    1e400,
    10**30,
    "",
    "\ud800",
    "a\x00b",
    [],
    {},
    [[]],
    {"": None},
)


def main() -> None:
    """Instrument the parsers' modules, then run one parser."""
    import atheris

    with atheris.instrument_imports(include=["vectorforge.", "docutils", "docx", "striprtf"]):
        from tests.fuzz.parser_inputs import FOUND, inputs
        from tests.fuzz.parsers import PARSERS

    def mutate(content: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        try:
            value = json.loads(content) if chance.random() < _JSON_SHARE else None
        except (ValueError, RecursionError):
            value = None
        if value is None:
            return bytes(atheris.Mutate(content, len(content)))
        changed = json.dumps(_replaced(value, chance)).encode()
        return changed if len(changed) <= max_size else content

    name, corpus = sys.argv[1], Path(sys.argv[2])
    for number, content in enumerate([*inputs(name), *FOUND.get(name, ())]):
        (corpus / f"begin-{number}").write_bytes(content)
    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[3:]], PARSERS[name], custom_mutator=mutate)
    atheris.Fuzz()


def _replaced(value: Any, chance: random.Random) -> Any:
    """Return the JSON value with one part replaced, removed or doubled."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return chance.choice(_ODD)
    if isinstance(value, list):
        place = chance.randrange(len(value))
        part = _replaced(value[place], chance)
        return [*value[:place], *([part, part] if chance.random() < 0.1 else [part]), *value[place + 1 :]]
    name = chance.choice(list(value))
    if chance.random() < 0.1:
        return {key: part for key, part in value.items() if key != name}
    return {**value, name: _replaced(value[name], chance)}


if __name__ == "__main__":
    main()
