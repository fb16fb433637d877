"""Follow-up queries without a model: a test whether one stands alone, and its expansion by earlier turns.

The words listed are closed classes of a language (pronouns, conjunctions, particles), by which a query points
at an earlier turn. If a list lacks a word or a language, the query's length and shared words decide.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.llm.providers.patterns import ENGLISH_QUERY, LABEL_LIKE, WORD
from vectorforge.llm.providers.words import terms
from vectorforge.patterns import pattern_of
from vectorforge.pipeline.types import HistoryMessage

_READ_CHARS = 2_000
"""Start of a message that is read."""
_TURNS = 3
"""Latest turns of the user that may expand a query, besides the first one."""
_TURN_CHARS = 200
"""Start of a turn, and of the answer that a query is compared with: a long one has a word of any query."""
_TURN_WORDS = 6
"""Content words of one turn, and of the last answer: more would outweigh the query's own. A pair of
characters of a script without spaces counts as half of one."""
_FEW_WORDS = 3
"""Words, and characters of a script without spaces, of a query too short to stand alone."""
_FEW_CHARS = 6
_FEW_CONTENT_WORDS = 2
"""Content words of a query that may leave its subject out without pointing at it: "Can speed be limited?"."""

_POINTERS = frozenset(
    """
    it its itself they them their theirs themselves he him his himself she her hers herself
    this these those ones both neither former latter same such another others
    also again instead meanwhile afterwards otherwise
    cela ça celui celle ceux celles ils elles leur leurs eso esto esos esas aquello ellos ellas
    esso essa essi esse ciò questo quello isso isto aquilo ele ela eles elas
    оно она они его её их ним ней этот эта эти там
    """.split()  # noqa: SIM905 - a list would take a line a word
)
_GERMAN_POINTERS = frozenset(
    """
    er es sie ihn ihm ihr ihnen ihre ihren ihrem ihrer ihres sein seine seinen seinem seiner seines
    dies diese dieser dieses diesem diesen jene jener jenes dort da dabei dafür dagegen damit danach daran
    darauf daraus darin darüber darum davon davor dazu dadurch denen deren dessen auch stattdessen
    """.split()  # noqa: SIM905
)
_GERMAN = frozenset(
    """
    der die das den dem des ein eine einen einem einer und oder aber ist sind war wird werden wurde kann
    können muss müssen darf hat haben wie was wer wo wann warum wieso wozu woher wohin welche welcher welches
    ich wir man nicht kein keine mit für auf bei von vom zu zum zur im am aus nach über unter ohne um als wenn
    dann denn gibt
    """.split()  # noqa: SIM905
)
_FUNCTION_WORDS = (
    _POINTERS
    | _GERMAN_POINTERS
    | _GERMAN
    | frozenset(
        """
    one there here then than else ever yet just only very too please ok okay without per
    make makes made get gets work works happen happens mean means use used using need needs want tell
    """.split()  # noqa: SIM905
    )
)
"""Words that say nothing of the subject, besides those that ``terms`` drops."""

_OPENING = pattern_of(
    r"(?:and|but|or|so|then|also|what about|how about|what if|what else|why not"
    r"|und|aber|oder|also|dann|was ist mit|et|mais|ou|y|pero|ma|mas|maar|och|men|и|а|но|ve)\b(?!-)"
    # a preposition without a question word after it: "On AWS?"
    r"|(?:for|on|in|at|with|without|from|after|before|during|via|für|auf|im|in|bei|mit|ohne|nach|vor|während)\s+"
    r"(?!which|what|whom|whose|how|where|welche|wie|was)",
    re.IGNORECASE,
)
_REFERENCE = pattern_of(
    r"\b(?:that|there|one)\s*(?:$|[?.!,;:])"
    r"|\b(?:is|are|was|does|do|did|can|could|will|would|should|about|of|for|to|from|with|like|after|before|by)"
    r" that\b(?! (?:the|a|an|is|are)\b)"
    r"|\b(?:which|that|this|other|new|old|first|second|last) one\b",
    re.IGNORECASE,
)
_GERMAN_REFERENCE = pattern_of(r"\b(?:das|der|die)\s*(?:$|[?.!,;:])", re.IGNORECASE)
_COMPARISON = pattern_of(
    r"\b(?:better|worse|best|worst|faster|slower|cheaper|smaller|larger|bigger|longer|shorter|newer|older|more"
    r"|less|fewer|different|difference|besser|schlechter|schneller|größer|kleiner|billiger|mehr|weniger"
    r"|unterschied)\b(?!.*\b(?:than|from|between|als|zwischen|von)\b)",
    re.IGNORECASE,
)
_LETTERS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_SYLLABLES = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_UNSPACED = pattern_of(f"[{_LETTERS}{_SYLLABLES}]")
_PAIR = pattern_of(f"[{_SYLLABLES}]")
_CONTENT_WORD = pattern_of(rf"[{_LETTERS}]{{1,8}}|[{_SYLLABLES}]{{1,2}}|[^\W_{_LETTERS}{_SYLLABLES}]+")
"""Word; of scripts without spaces about one, as a run is often a sentence."""
_ARABIC_AND = pattern_of(r"\W*و\w")
_ARABIC_SUFFIX = pattern_of(r"[\u0621-\u064a]{2}(?:ه|ها|هما?|هن)\b")
_SUFFIX_WORDS = 5
"""Words of a query up to which a suffix points back; in a longer one it often means a word of it."""
_REACTION = pattern_of(r"[^\W\d]{1,12}(?: [^\W\d]{1,12})?[,.!;،]+\s+\w")
"""Clause of one or two words before the query: "No, I meant ...", "Danke! Wie ..."."""
_THANKS = pattern_of(
    r"(?:\W*(?:ok|okay|(?:many )?thanks?(?: you)?|thx|(?:vielen |besten )?dank|danke(?: schön)?"
    r"|merci(?: beaucoup)?|(?:muchas )?gracias|grazie(?: mille)?|obrigad[oa]|(?:большое )?спасибо|谢谢|謝謝"
    r"|ありがとう(?:ございます)?|감사합니다|고마워요?|ขอบคุณ|شكرا)\b)+\W*",
    re.IGNORECASE,
)
"""Messages that are no query: expanded, they would repeat the last answer."""
_ASIAN_POINTERS = pattern_of(
    "[它他她这那其此呢這]|それ|これ|あれ|その|この|あの|そこ|ここ|では|มัน|นั้น|นี้|그것|이것|그거|이거|거기|그럼|그리고"
)


def stands_alone(query: str) -> bool:
    """Return False if a query points at an earlier turn or is too short to be understood without it.

    A wrong answer costs a call of the model, or leaves the decision to shared words; see ``expand``.
    """
    text = query[:_READ_CHARS]
    if _ASIAN_POINTERS.search(text) or _ARABIC_AND.match(text) or _REACTION.match(text):
        return False
    if unspaced := len(_UNSPACED.findall(text)):
        return unspaced > _FEW_CHARS
    words = [word.lower() for word in WORD.findall(text)]
    known = set(words)
    points = known & _POINTERS or (known & _GERMAN and known & _GERMAN_POINTERS)
    if points or (len(words) <= _SUFFIX_WORDS and _ARABIC_SUFFIX.search(text)):
        return False
    if _OPENING.match(text.lstrip("¿¡ ")) or _REFERENCE.search(text) or _COMPARISON.search(text):
        return False
    if _GERMAN_REFERENCE.search(text) and not ENGLISH_QUERY.search(text):
        return False
    return len(words) > _FEW_WORDS and sum(1 for _ in _content(text)) > 1


@dataclass(frozen=True, slots=True)
class Expansion:
    """Parts of earlier turns that a follow-up query is searched for with."""

    words: str
    """First content words of the turns that the query does not have, of the latest turn first."""
    is_related: bool
    """True if the query points at earlier turns or shares a word with them; else its subject may be new, and
    only the search by words uses them."""
    answer_words: str
    """First content words of the last answer, for the search by words only: a quotation chosen by them would
    repeat the answer."""

    @property
    def context(self) -> str:
        """Words that the search by words counts less than the query's own."""
        return f"{self.words} {self.answer_words}".rstrip()


def expand(query: str, messages: Sequence[HistoryMessage]) -> Expansion | None:
    """Return what expands a query; None for thanks, and without an earlier turn of the user.

    The turns are the latest one and those before it, back to one that stands alone, and the first one that
    does, which often names the subject of all: at most four.

    Args:
        query: The query.
        messages: Earlier messages of user and assistant, oldest first.
    """
    earlier = [message.content[:_READ_CHARS] for message in messages if message.role == "user"]
    if not any(map(str.split, earlier)) or _THANKS.fullmatch(query[:_READ_CHARS]):
        return None
    first = next(filter(stands_alone, earlier), earlier[0])
    turns = dict.fromkeys(text[:_TURN_CHARS] for text in (*_latest(earlier), first))
    last = messages[-1]
    answer = LABEL_LIKE.sub(" ", last.content[:_READ_CHARS]) if last.role == "assistant" else ""
    seen = set(terms(query[:_READ_CHARS]))
    words = [word for turn in turns for word in _new_words(turn, seen)]
    is_related = _is_related(query, [*earlier[-_TURNS:], answer[:_TURN_CHARS]])
    answered = "" if answer.startswith(NO_ANSWER) else answer
    return Expansion(" ".join(words), is_related, " ".join(_new_words(answered, seen)))


def _new_words(text: str, seen: set[str]) -> list[str]:
    """Return the first content words with terms that are not in ``seen``, and add these."""
    words, left = [], float(_TURN_WORDS)
    for word, found in _content(text):
        if found <= seen:
            continue
        left -= 0.5 if _PAIR.match(word) else 1
        if left < 0:
            break
        words.append(word)
    seen.update(*map(terms, words))
    return words


def _latest(earlier: Sequence[str]) -> Iterator[str]:
    """Yield the latest turns, latest first, up to one that stands alone."""
    for text in earlier[: -_TURNS - 1 : -1]:
        yield text
        if stands_alone(text):
            return


def _is_related(query: str, texts: Iterable[str]) -> bool:
    own = [found for _, found in _content(query[:_READ_CHARS])]
    if len(own) <= _FEW_CONTENT_WORDS or not stands_alone(query):
        return True
    known = frozenset[str]().union(*map(terms, texts))
    return any(found & known for found in own)


def _content(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the words that carry meaning, with their terms. In English, "die" and "war" do."""
    ignored = _FUNCTION_WORDS - _GERMAN if ENGLISH_QUERY.search(text) else _FUNCTION_WORDS
    for match in _CONTENT_WORD.finditer(text):
        word = match[0]
        if word.lower() not in ignored and (found := terms(word)):
            yield word, found
