"""Detection of a document's language, by CLD3.

https://github.com/google/cld3; docs/decisions/ingestion.md compares the libraries.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gcld3 import NNetLanguageIdentifier

logger = logging.getLogger(__name__)

LANGUAGE_FIELD: Final = "language"
"""Metadata with a document's language, ISO 639-1 ("de"); ``vectorforge.text_config`` reads it."""
_CURRENT_CODES: Final = {"in": "id", "iw": "he", "ji": "yi", "jw": "jv", "mo": "ro", "sh": "sr"}
"""Current codes in place of withdrawn ones, of which CLD3 returns "iw" and metadata may have any."""
_LEAST_PROBABILITY: Final = 0.9
_CLOSE_LANGUAGES: Final = {"bs": "hr", "hr": "hr", "id": "id", "ms": "id"}
"""Languages between which the probability is divided, as they are nearly one -> the one with more texts."""
_LEAST_PROBABILITY_OF_CLOSE: Final = 0.5
"""CLD3's own for Bosnian and Croatian (https://github.com/google/cld3, ``kReliabilityHrBsThreshold``)."""
_LEAST_LETTERS: Final = 60
"""Letters below which CLD3 is wrong too often: of 30, 1 of 11 texts in 45 languages; of 120, 1 of 27."""
_LEAST_SYLLABLES: Final = 20
"""Likewise where a character is a syllable or a word."""
_LETTERS_PER_SYLLABLE: Final = 3
_SAMPLES: Final = 4
_SAMPLE_CHARS: Final = 500
_MODEL_BYTES: Final = 4 * _SAMPLES * _SAMPLE_CHARS
"""Bytes that the model may read: all of the samples."""
_MODEL_CHARS: Final = 400
"""Characters that the model reads, in words spread over the samples. Of 14,083 texts of 1,500 characters in
95 languages it names 12,616 with these, 12,623 with all, and one differently."""
_LEAST_WORDS: Final = 10
"""Words that the model reads at least; in scripts without blanks each is a phrase."""
_OF_SCRIPT: Final = {
    "ARMENIAN": "hy",
    "GEORGIAN": "ka",
    "GREEK": "el",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "HANGUL": "ko",
    "KANNADA": "kn",
    "KHMER": "km",
    "LAO": "lo",
    "MALAYALAM": "ml",
    "MYANMAR": "my",
    "ORIYA": "or",
    "SINHALA": "si",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
}
"""Languages whose script hardly any other one has, by the first word of its letters' names in Unicode."""
_LEAST_SHARE_OF_SCRIPT: Final = 0.8
_LEAST_LETTERS_OF_SCRIPT: Final = 10
# Words between blanks, with the punctuation that a sentence has: neither code, nor numbers, nor addresses.
_WORD: Final = re.compile(r"(?<!\S)[\"'(«„“‘¿¡]*[^\W\d_][^\s!-&(-,./0-@\[-`{-\x7f]*[\"').,;:!?]*(?!\S)")
_SYLLABLES: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+"
)


def with_language(metadata: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """Return the metadata with the text's ``language``, unless there is one or it is uncertain."""
    if LANGUAGE_FIELD in metadata:
        return metadata
    language = detect_language(text)
    return metadata if language is None else {**metadata, LANGUAGE_FIELD: language}


def language_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the language in a document's metadata, ISO 639-1 ("pt" for "pt-BR"); None if there is none."""
    code = re.match(r"[a-z]{2}(?=$|[-_])", str(metadata.get(LANGUAGE_FIELD)).lower())
    return code and _CURRENT_CODES.get(code[0], code[0])


def detect_language(text: str) -> str | None:
    """Return the language of most of a text, in about 0.2 ms.

    Args:
        text: Any text; of a long one, four parts are read.

    Returns:
        The two letters of ISO 639-1, such as "de"; None if the text is too short, its language uncertain or
        without such a code, or if CLD3 is not installed (extra ``ingest``).
    """
    sample = _sample(text)
    if language := _language_of_script(sample):
        return language
    # Distinct words: a page that repeats "text delta" in lines of JSON is Catalan to CLD3.
    syllables, words = _SYLLABLES.findall(sample), list(dict.fromkeys(_of_one_script(_WORD.findall(sample))))
    letters = sum(map(len, words))
    if sum(map(len, syllables)) >= max(_LEAST_SYLLABLES, letters // _LETTERS_PER_SYLLABLE):
        words = syllables
    elif letters < _LEAST_LETTERS:
        return None
    model = _model()
    if model is None:
        return None
    found = model.FindLanguage(" ".join(_spread(words)))
    code: str = found.language.partition("-")[0]
    if found.probability >= _LEAST_PROBABILITY:
        return _CURRENT_CODES.get(code, code) if len(code) == 2 else None
    return _CLOSE_LANGUAGES.get(code) if found.probability >= _LEAST_PROBABILITY_OF_CLOSE else None


def _sample(text: str) -> str:
    if len(text) <= _SAMPLES * _SAMPLE_CHARS:
        return text
    step = len(text) // _SAMPLES
    return "\n".join(text[start : start + _SAMPLE_CHARS] for start in range(0, step * _SAMPLES, step))


def _language_of_script(sample: str) -> str | None:
    """Return the language that the script tells; CLD3 takes Greek with a German name for Welsh."""
    if sample.isascii():
        return None
    letters = [letter for letter in sample if letter.isalpha()]
    read = letters[:: 1 + len(letters) // _MODEL_CHARS]
    scripts = Counter(map(_script, read))
    [(script, count)] = scripts.most_common(1) or [("", 0)]
    is_clear = len(letters) >= _LEAST_LETTERS_OF_SCRIPT and count >= _LEAST_SHARE_OF_SCRIPT * len(read)
    return _OF_SCRIPT.get(script) if is_clear else None


def _of_one_script(words: list[str]) -> list[str]:
    """Return the words of the most frequent script; CLD3 takes Arabic after a Latin word for Swedish."""
    if all(map(str.isascii, words)):
        return words
    scripts = [_script(next(filter(str.isalnum, word))) for word in words]
    [(most, _)] = Counter(scripts).most_common(1)
    return [word for word, script in zip(words, scripts, strict=True) if script == most]


def _script(letter: str) -> str:
    """Return the first word of a letter's name in Unicode, such as "LATIN"."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _spread(words: list[str]) -> list[str]:
    """Return as many of the words as ``_MODEL_CHARS`` hold, at equal distances."""
    total = len(words)
    wanted = max(_LEAST_WORDS, total * _MODEL_CHARS // sum(map(len, words)))
    return words if wanted >= total else [words[place * total // wanted] for place in range(wanted)]


@cache
def _model() -> "NNetLanguageIdentifier | None":
    try:
        import gcld3
    except ImportError:
        logger.warning("Languages are not detected: the extra 'ingest' is not installed.")
        return None
    return gcld3.NNetLanguageIdentifier(0, _MODEL_BYTES)
