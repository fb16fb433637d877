"""Patterns and words of texts, pieces of chunks that can be quoted, and how well these cover a query."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final, TypeAlias

from vectorforge.patterns import pattern_of

ENGLISH_STOP_WORDS: Final = frozenset(
    """
    a about an and any are as at be been but by can could d did do does doing for from had has have he
    her him his how i if in into is it its ll many may me might more most much must my no not of off on
    or our s shall she should so some such t than that the their them then there these they this those
    to too up us was we were what when where which while who whom whose why will with would you your
    """.split()  # noqa: SIM905 - a list would take a line a word
)
# Those of other languages that are no words of content in English; the rest is frequent in the sources of
# its language, and so has little weight. Of scripts without spaces, the pairs of letters of question words.
STOP_WORDS: Final = ENGLISH_STOP_WORDS | frozenset(
    """
    aber als auch auf aus bei beim das dass dem den der des dies diese dieser dieses durch ein eine einem
    einen einer eines er es für hatte ihre ihrer im ist kann nach nicht noch nur oder sein seine sich sie
    sind um und unter vom von vor wann waren warum welche welchem welchen welcher welches wem wen wenn wer
    werden wie wieso wird wo wofür woher wohin worden wurde wurden zu zum zur zwischen über au aux avec ce
    ces cette dans de du elle elles est et eux il ils le les leur leurs lorsque mais ne où ou par pas
    pourquoi qu quand que quel quelle quelles quels qui quoi sa ses sont sur une à été être était al como
    con cuál cuáles cuando cuándo cuánto cuántos cuántas del desde donde dónde el en entre eran ese esta
    este fue fueron ha han las lo los más o para pero por porque qué quién quiénes se según si su sus
    también una y cómo che chi com cosa cui da dal dalla degli dei della delle di dos e em ela ele furono
    gli na nas nel nella não nos onde pela pelo perché qual quale quali quando quanti quanto quem são stata
    stato stati uma è aan af alleen att av bij det deze dit een ettför från gjør hoe hoeveel hva hvad hvem
    hvilken hvor hvordan hvornår hvorfor hur het ik inte ikke naar niet når när och og om op på som te til
    till uit vad varför vem vilken voor waar waarom wanneer wat welke werd zich zijn är bir bu hangi için
    ile kaç nasıl neden nerede olan olarak ve adalah apa bagaimana berapa dari dengan itu kapan ke mengapa
    pada siapa untuk yang co czy dla dlaczego do gdzie i jak jaki jaka jakie jest kiedy kto która które
    który nie od oraz po przez się to w z а без был была были было быть в вы где для до его ее если есть же
    за и из или их к как какая какие какой когда которая которые который кто ли мы на не но о об он она они
    от по почему при с сколько со так то у что эта эти это этот я أو أي أين إلى إن التي الذي الذين أن ثم ذلك
    عن على عند في قد كان كانت كل كم كيف لا لم لماذا ما ماذا متى مع من هذا هذه هل هو هي و بعد قبل από για
    είναι η και με να ο οι πώς πόσο πότε ποια ποιος ποιο σε στη στην στο τα τη την της τι το τον του των που
    का की के को क्या क्यों कब कहाँ किस किसने कितने कैसे कौन ने पर में यह से है हैं था थे थी और 什么 什麼
    哪个 哪個 哪些 哪里 哪裡 哪年 怎么 怎麼 怎样 如何 为什 為什 么时 多少 几个 多久 是谁 是什 是哪 谁是 了什
    了多 有多 么是 什麽 は何 何で すか です ます した どの いつ どこ なぜ のは 誰が 誰で れた して ある いる
    どう 무엇 엇인 인가 가요 나요 하나 어떻 떻게 누구 구인 언제 어디 얼마 마나 어느 에서 니까 습니 니다 있나
    되나 까요 bạn bị bởi các có của được gì không là làm mà nào này nên nhiêu như những
    thế thì trong và vào với vì đã đâu để đó đang ở
    """.split()  # noqa: SIM905
)
_MEASURES: Final = "(?:viele?|lange?|alt|weit|groß|hoch|oft|schnell|breit|tief|schwer|teuer)"
"""German words after "wie" in a query for a value."""
NUMERIC_QUESTION: Final = pattern_of(
    r"\b(?:how (?:many|much|long|old|far|large|big|tall|high|often|fast|wide|deep)"
    r"|(?:what|which) (?:percent|percentage|number|version|release|year|date|day|month|decade|century)|when"
    rf"|wie ?{_MEASURES}|wann|combien|quand|cu[aá]nd?[nt]?[oa]s?|quant[oiae]|quando)\b",
    re.IGNORECASE,
)
NUMERIC_ANSWER: Final = pattern_of(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|half|third|hundred|thousand"
    r"|million|billion|percent|century|decade|January|February|March|April|May|June|July|August|September"
    r"|October|November|December|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)\b"
)
NAME_QUESTION: Final = pattern_of(
    r"\b(?:who|whom|whose|where"
    r"|(?:what|which) (?:city|country|state|person|team|company|school|university|name))\b",
    re.IGNORECASE,
)
PROCEDURE: Final = pattern_of(
    r"\b(?:how (?:do|can|should|must|does|is|are|to)|steps?|order|comment|c[oó]mo)\b|如何|怎么"
    rf"|\bwie\b(?! {_MEASURES}\b)|\b(?:jak|как|πώς|nasıl|hoe|hur|hvordan|bagaimana|thế nào)\b"
    "|كيف|कैसे|どう(?:すれば|やって)|어떻게|อย่างไร",
    re.IGNORECASE,
)
"""Query about a procedure."""
ENGLISH_QUERY: Final = pattern_of(
    r"\b(?:the|what|how|which|does|who|when|why|where|is|are|can|did)\b", re.IGNORECASE
)
TECHNICAL_TERM: Final = pattern_of(r"[A-Z].*[A-Z]")
"""Word with several capital letters, such as an acronym."""
VALUE: Final = pattern_of(r"\d+(?:[.,:]\d+)*|\b[A-Z]\w+|`[^`]+`")
REASON_QUESTION: Final = pattern_of(r"\bwhy\b", re.IGNORECASE)
REASON_ANSWER: Final = pattern_of(
    r"\b(?:because|since|due to|so that|caused?|causes|reasons?|in order to|therefore|as a result)\b",
    re.IGNORECASE,
)
QUESTION: Final = pattern_of(r"[?？؟፧]\Z|[\u0370-\u03ff\u1f00-\u1fff][;\u037e]\Z|\u055e")
"""The Greek mark is a semicolon; the Armenian one stands in a word of the question."""
REFERENCE: Final = pattern_of(
    r"\(?(?:(?:see|refer to|siehe|voir|véase|vedi|zie)\b|vgl\.|cf\.|参见|參見|参照|详见)[^:;]{1,120}",
    re.IGNORECASE,
)
"""Sentence that only names another place: "See file types."."""

FENCE: Final = pattern_of(r"\s*(```+|~~~+)")
INDENTED: Final = pattern_of(r"(?: {4}|\t)\s*\S.*[^.!?]$")
NESTED: Final = pattern_of(r"(?m)^([ \t]*)\S.*[:{(\[]\n\1(?: {2}|\t)")
"""Line of code or data that opens what the deeper indented ones have: "def name():"."""
FIELD: Final = pattern_of(
    r"[*_]{0,2}(?![a-zß-öø-ÿ])[^\W\d_][\w/()-]{0,30}(?: [\w/()-]{1,30}){0,2}[*_]{0,2}:[*_]{0,2}\s+\S"
)
"""Line of a list without markers: "Date: 2026-08-19"."""
HEADING: Final = pattern_of(r"\s{0,3}#{1,6}\s")
UNDERLINE: Final = pattern_of(r"\s*(=+|-{2,})\s*$")
ITEM: Final = pattern_of(r"\A\s*(?:>\s*)*(?:[-*+•‣▪◦●]|(\d{1,3}[.)]|\(?(?:[a-z]|[ivx]{2,4})\)))\s+")
# Of Markdown; "column: value; column: value" and "value | value" of other files (ingestion.extract.blocks).
ROW: Final = pattern_of(
    r"\s*\|.*\|\s*$|(?! {4}|\t|\s*(?:[-*+•]|\d{1,3}[.)])\s)"
    r"(?:[^:;|]{1,80}: [^\n]*; [^:;|]{1,80}: \S|(?:[^|`]|`[^|`]*`){1,200} \| \S)"
)
RULE: Final = pattern_of(r"[\s|:*_=>-]*(?:>\s*\[![A-Z]+\]\s*)?$")
CELL_END: Final = pattern_of(r"(?<!\\)\|")
LABEL_LIKE: Final = pattern_of(r"\[(?:source|sources|context)?\s*\d[\d,; ]*\]", re.IGNORECASE)
COMMENT: Final = pattern_of(r"<!--.*?-->", re.DOTALL)
MARKUP: Final = pattern_of(
    r"!\[[^\]\n]{0,200}\]\([^)\n]{0,500}\)|\[(?P<link>[^\[\]\n]{1,300})\]\([^()\n]{0,500}(?:\([^()\n]{0,100}\))?[^()\n]{0,100}\)"
    r"|<(?P<address>(?:https?://|mailto:)[^<>\s]{1,500}|[\w.+-]{1,64}@[\w.-]{1,255})>|~~[^~\n]{1,300}~~"
    r"|(?<![\w\]])\[(?P<reference>[^\[\]\n]{1,300})(?<!\d)\]\[[^\[\]\n]{0,80}\]"
    r"|`(?P<code>[^`\n]{1,200})`|(?<![\w*])(?P<mark>\*{1,3})(?=[^\s*])(?P<strong>[^*\n]{0,300}[^\s*])(?P=mark)(?![\w*])"
    r"|(?<!\w)(?P<line>_{1,3})(?=[^\s_])(?P<italic>[^_\n]{0,300}[^\s_])(?P=line)(?!\w)"
    r"|</?(?P<inline>b|i|u|em|strong|code|kbd|sup|sub|span)(?:\s[^<>\n]{0,300})?>|</?(?:a|br|details|div|img|p|summary)\b[^<>\n]{0,300}>|\n\s*>|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<entity>&(?!(?:lt|gt|amp);)#?[A-Za-z0-9]{2,8};)"
)
NEEDS_CODE: Final = pattern_of(r"[*<>\[\]|\\]|\b__|(?<!\w)_|_(?!\w)")
"""Inline code that would be read as markup without its marks."""

WORD: Final = pattern_of(r"[^\W_]+")
MARKED_WORD: Final = pattern_of(
    r"(?:[^\W_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u109f\u1780-\u17d3])+"
)
"""Word with the vowel signs of Hebrew, Arabic, Indian and south-east Asian scripts."""
EXACT: Final = pattern_of(r"(?<!\w)[$@#/.-]{0,2}+[^\W_]++(?:[-._/:$]{1,3}+[^\W_]++)++|[$@]\w++")
"""Identifiers, paths and versions, which also count as a whole."""
IDENTIFIER: Final = pattern_of(r"[^\W\d_]+-?\d")
"""Start of a code such as E05 or PAY-330; "1960s" is none."""
_CODE: Final = pattern_of(r"[^\W\d_]{1,3}\d+\Z|[^\W\d_]+(?:-\d+)+\Z")
"""Code whose other spellings are known; "covid19" is also written COVID-19."""
_ACRONYM: Final = pattern_of(r"[A-ZΑ-ΩЀ-Я]{2,8}")
SETTING: Final = pattern_of(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
UNSPACED: Final = pattern_of(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
"""Scripts without spaces between words, and Korean, whose words have many endings."""
# Longest first; at least three letters stay. Coarser than Porter's: it only has to match the forms of a
# query and its answer.
SUFFIXES: Final = (
    ("ations", "at"), ("ation", "at"), ("ments", ""), ("ment", ""), ("ingly", ""), ("ings", ""), ("ies", "y"),
    ("ied", "y"), ("ing", ""), ("ion", ""), ("ions", ""), ("edly", ""), ("ers", ""), ("ed", ""), ("er", ""),
    ("es", ""), ("ly", ""), ("s", ""), ("e", ""),
)  # fmt: skip
ENDINGS: Final = tuple(suffix for suffix, _ in SUFFIXES)
_FIRST_SYLLABLE: Final = "\u1800"
"""Scripts without spaces before it write letters (Thai, Lao, Burmese, Khmer), those after it syllables."""
_START: Final = 5
"""Letters by which words of another script are compared; 6 found less in Arabic."""
_IN_HIRAGANA: Final = pattern_of(r"[\u3040-\u309f]")
ARABIC_ARTICLE: Final = pattern_of(r"\A[\u0648\u0628\u0643\u0641]?(?:\u0627\u0644|\u0644\u0644)(?=\w{3})")


@lru_cache(maxsize=16_384)  # chunks share their words; at most about 2 MB
def stem(word: str) -> str:
    """Return a lower-case word without its ending; at least three letters stay."""
    if _in_other_script(word[0]):
        return _start(word)
    for suffix, replacement in SUFFIXES if word.endswith(ENDINGS) else ():
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: len(word) - len(suffix)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]  # running, runs
    return word.removesuffix("e") if len(word) > 3 else word


def _in_other_script(text: str) -> bool:
    """Return True if most letters are not Latin."""
    letters = [letter for letter in text if letter.isalpha()]
    others = [letter >= "\u0370" and not "\u1e00" <= letter <= "\u1eff" for letter in letters]
    return sum(others) * 2 > len(letters)


def _start(word: str) -> str:
    """Return the start of a word of another script, which its forms have in common, without accents."""
    letters = "".join(one for one in unicodedata.normalize("NFD", word) if not unicodedata.combining(one))
    return ARABIC_ARTICLE.sub("", letters)[:_START]


def _grams(run: str) -> Iterator[str]:
    """Yield pairs of syllables, but four letters of a script such as Thai, whose pairs are in every text."""
    size = 2 if run[0] >= _FIRST_SYLLABLE else 4
    for start in range(max(1, len(run) - size + 1)):
        yield run[start : start + size]


def _acronyms(words: Iterable[str], text: str) -> Iterator[str]:
    """Yield the words that a text has in capitals."""
    for word in words:
        big = word.upper()
        if big in text and _ACRONYM.fullmatch(big) and re.search(rf"(?<!\w){big}(?!\w|-\d)", text):
            yield word


def _meaningful(words: set[str], text: str) -> set[str]:
    """Return words without stop words, of which those in capitals alone count: "it" in "Call IT."."""
    has_small = not all(map(str.isupper, filter(str.isalpha, text)))
    return words - STOP_WORDS | set(_acronyms(words & STOP_WORDS, text) if has_small else ())


def terms(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning; of scripts without spaces, pairs of characters."""
    if text.isascii():
        words = set(WORD.findall(text.lower()))
        return frozenset(map(stem, _meaningful(words, text)))
    words = set(MARKED_WORD.findall(text.lower()))
    stems: set[str] = set()
    for word in _meaningful(words, text):
        if runs := UNSPACED.findall(word):
            pairs = {gram for run in runs for gram in _grams(run)}
            stems |= pairs - STOP_WORDS
            stems |= set(map(stem, set(UNSPACED.sub(" ", word).split()) - STOP_WORDS))
        else:
            stems.add(stem(word))
    return frozenset(stems)


def all_terms(text: str) -> frozenset[str]:
    """Return the terms, and identifiers, paths and versions as a whole; of settings (A_B) only the whole."""
    return terms(SETTING.sub(" ", text)) | frozenset(EXACT.findall(text.lower()))


_ENOUGH_EVIDENCE = 0.67
"""Half the share of an English query's words in the best piece and before it, plus the best cosine."""
_ENOUGH_IN_OTHER_LANGUAGES = 0.96
"""Mean share of the letters of a query in another language, in the best piece and in all, plus the cosine."""
_ENOUGH_WORDS = 1.2
"""These shares, and the best coverage, if words alone decide."""
_ENOUGH_IN_OTHER_SCRIPTS = 0.73
"""The same between texts of another script than Latin."""
_PROCEDURE_SHARE = 0.75
"""Share of the query's letters in the words above a step from which all steps are quoted."""
_MISSING_TERM = 0.3
_MISSING_NAME = 0.1
"""Further evidence required by an English query with a technical term or a name that no chunk has. With these
figures 2 to 4 % of the own queries of five collections are refused, and 96 to 100 % of others' queries."""

# Tuned by hand on a public question set (SQuAD paragraphs).
_WEIGHT_RANK = 0.2
_WEIGHT_RELEVANCE = 0.7  # of 1,190 first citations 1,129 are right with 0, 1,133 or 1,134 with 0.3 to 0.7
_WEIGHT_TYPE = 0.3
_WEIGHT_BEFORE = 0.4
_WEIGHT_SUBJECT = 1.5
_WEIGHT_KEY = 0.2  # a subject that the query names, even by words that most sentences have
_WEIGHT_OPENING = 0.5
_PENALTY_SHORT = 0.1
_PENALTY_FRAGMENT = 0.1
_SHORT = 30
"""Characters; shorter texts are rarely sentences."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a chunk that can be quoted."""

    start: int
    end: int
    """``chunk[start:end]`` is the part with its markup."""
    text: str
    """Text without markup on one line, a row as "column: value; column: value"; code as it is, in a fence."""
    before: str
    """Heading above and preceding text of the same block, which often define what "it" refers to."""
    kind: str = "prose"
    """prose | item | step (of a numbered list) | code | row."""
    is_fragment: bool = False
    """True if the chunk's edge may have cut the sentence."""
    block: int = 0
    """Number of the paragraph, item or row."""
    part: int = 0
    """Number of the block's list, table or code with the paragraph that leads in to it."""
    subject: str = ""
    """First cell of a row, or what an item explains: "dev: ..."."""
    opens: str = ""
    """Heading right above it."""
    heading: str = ""
    """Line to quote above a list or table without a lead-in: the heading that it stands under."""
    path: str = ""
    """Path of the headings above it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Piece of a source, with its words."""

    source: int
    """Position in the list of sources, best source first."""
    piece: Piece
    terms: frozenset[str]
    before: frozenset[str]
    subject: frozenset[str]
    """Words of ``piece.subject``."""
    opens: frozenset[str]
    """Words of ``piece.opens``."""
    relevance: float = 0.0
    """Relevance of its source as a share of the best source's, 0 to 1; 0 if unknown."""


Scored: TypeAlias = tuple[float, Candidate]
Quote: TypeAlias = tuple[int, Piece]
"""A piece with the position of its source."""
Parts: TypeAlias = dict[tuple[int, int], list[Piece]]
"""Pieces by their source's position and their part, in their order."""


class WeightedQuery:
    """Query with the weight of each of its words among the candidates."""

    def __init__(self, text: str, among: Sequence[Candidate]) -> None:
        self.text = text
        self.terms = all_terms(text)
        # Stems are English: forms of another language's word have their start in common.
        inflected = frozenset() if ENGLISH_QUERY.search(text) else self.terms
        self._starts = {term: term[:_START] for term in inflected if len(term) >= _START}
        counts = Counter(chain.from_iterable(self.matched(candidate.terms) for candidate in among))
        total = len(among)
        # BM25's inverse document frequency (https://doi.org/10.1561/1500000019), over sentences
        self._idf = {t: math.log(1 + (total - counts[t] + 0.5) / (counts[t] + 0.5)) for t in self.terms}
        self._mass = sum(self._idf.values()) or 1.0
        parts = frozenset(map(stem, WORD.findall(" ".join(EXACT.findall(text.lower())))))
        self._in_no_text = frozenset(term for term in self.terms - parts if not counts[term])
        """Terms that only headings may have."""
        self.keys = frozenset(term for term in self._in_no_text if any(map(str.isdigit, term)))
        """Versions, dates and codes among these."""
        self._letters = sum(map(_letters, self.terms)) or 1
        self._identifiers = frozenset(filter(IDENTIFIER.match, self.terms))
        most_words = 3 * len(self._identifiers)
        parts = frozenset(map(stem, WORD.findall(" ".join(self._identifiers)))) - self._identifiers
        if not (ENGLISH_QUERY.search(text) or NUMERIC_QUESTION.search(text)):
            words = WORD.findall(UNSPACED.sub(" ", text.lower()))
            written = chain.from_iterable(_acronyms(words, one.piece.text) for one in among)
            acronyms = (self.terms - parts) & frozenset(map(stem, written))
            self._identifiers |= acronyms
            most_words += 2 * len(acronyms)
        self._is_short = sum(map(_word_share, self.terms - parts)) <= most_words
        self._words = {word.casefold() for word in WORD.findall(text)}

    def coverage(self, words: frozenset[str]) -> float:
        """Return the share of the query's word weight in ``words``, 0 to 1."""
        return sum(map(self._idf.__getitem__, self.matched(words))) / self._mass

    def matched(self, words: frozenset[str]) -> frozenset[str]:
        """Return the query's terms that are in ``words``, in another language in any form."""
        found = self.terms & words
        if not self._starts:
            return found
        starts = {word[:_START] for word in words}
        return found | {term for term, start in self._starts.items() if start in starts}

    def lexical_score(self, candidate: Candidate) -> float:
        """Score by words, rank and relevance of the source, kind of answer and completeness."""
        piece = candidate.piece
        score = self.coverage(candidate.terms)
        score += _WEIGHT_BEFORE * self.coverage(candidate.before - candidate.terms)
        score += bool(self.keys) and self.keys <= candidate.before
        score += _WEIGHT_OPENING * self.coverage(candidate.opens)
        score += _WEIGHT_RANK / (1 + candidate.source)
        score += _WEIGHT_RELEVANCE * candidate.relevance
        score += _WEIGHT_TYPE * self._answer_type(piece.text)
        if candidate.subject and candidate.subject <= self.terms:
            score += _WEIGHT_KEY + _WEIGHT_SUBJECT * self.coverage(candidate.subject)
        score -= _PENALTY_SHORT * (piece.kind == "prose" and len(piece.text) < _SHORT)
        score += self._has_identifiers(candidate.terms | candidate.before)
        return score - _PENALTY_FRAGMENT * piece.is_fragment

    def _answer_type(self, text: str) -> float:
        """Return 1 if the text has what the query word requires (a number, a name, a reason), else 0."""
        if NUMERIC_QUESTION.search(self.text):
            return float(bool(NUMERIC_ANSWER.search(text)))
        if NAME_QUESTION.search(self.text):
            names = (word for word in WORD.findall(text)[1:] if word[0].isupper())
            return float(any(name.casefold() not in self._words for name in names))
        if REASON_QUESTION.search(self.text):
            return float(bool(REASON_ANSWER.search(text)))
        return 0.5

    def headings(self, piece: Piece) -> list[str]:
        """Return the headings that a quotation of the piece needs.

        These have words of the query that no text has, or a number: the version and date of a release.
        """
        needs_number = bool(piece.heading) or (
            NUMERIC_QUESTION.search(self.text) is not None and not NUMERIC_ANSWER.search(piece.text)
        )
        return [
            heading
            for heading in piece.path.split(" > ")
            if (needs_number and any(map(str.isdigit, heading)))
            or not (self._in_no_text.isdisjoint(all_terms(heading)) or QUESTION.search(heading.strip("*_")))
        ]

    def needs_words(self, best: Candidate) -> bool:
        """Return True between texts of another script, any two of which are near to an English model."""
        return _in_other_script(self.text) and _in_other_script(best.piece.text)

    def is_procedure(self, best: Piece) -> bool:
        """Return True for a query about a procedure, by its words or those above the steps that it found."""
        is_above = best.kind == "step" and self._share(terms(best.heading)) >= _PROCEDURE_SHARE
        return is_above or bool(PROCEDURE.search(self.text))

    def is_covered(self, ranked: Sequence[Candidate], cosines: Sequence[float]) -> bool:
        """Return True if the candidates cover the query.

        Args:
            ranked: All candidates, best first.
            cosines: Cosines of the query and the first candidates; empty if words alone decide.
        """
        found = [one.terms | one.before for one in ranked]
        if any(map(self._has_identifiers, found)):
            return True
        if self._is_short and self._lacks_code(frozenset().union(*found)):
            return False
        if cosines and ENGLISH_QUERY.search(self.text):
            # Unweighted: a word in every source is the subject, and rarity would give it no weight.
            share = max(len(self.terms & words) for words in found) / len(self.terms)
            return share / 2 + max(cosines) >= self._required_evidence(frozenset().union(*found))
        best, anywhere = max(map(self._share, found)), self._share(chain.from_iterable(found))
        if cosines:
            return (best + anywhere) / 2 + max(cosines) >= _ENOUGH_IN_OTHER_LANGUAGES
        enough = _ENOUGH_IN_OTHER_SCRIPTS if self.needs_words(ranked[0]) else _ENOUGH_WORDS
        return best + anywhere + max(map(self.coverage, found)) >= enough

    def _has_identifiers(self, words: frozenset[str]) -> bool:
        """Return True if the words have all identifiers of a query with few other words.

        A model knows no codes, and of "was bedeutet E05" no other word, in any language, is in its answer.
        """
        return self._is_short and self._identifiers <= words

    def _lacks_code(self, words: frozenset[str]) -> bool:
        """Return True if the words have no spelling of a code: PAY-330, "PAY 330", PAY330."""
        codes = filter(_CODE.match, self._identifiers)
        return any(words.isdisjoint((one, one.replace("-", ""), one.rpartition("-")[2])) for one in codes)

    def _share(self, words: Iterable[str]) -> float:
        """Return the share of the query's letters in words that begin as one of these does.

        Stems are English; long words say more in any language.
        """
        starts = {word[:_START] for word in words}
        return sum(_letters(term) for term in self.terms if term[:_START] in starts) / self._letters

    def _required_evidence(self, found: frozenset[str]) -> float:
        """Return the threshold of an English query: what it names must be somewhere in the chunks."""
        missing = [word for word in names(self.text) if not all_terms(word) <= found]
        if any(TECHNICAL_TERM.search(word) for word in missing):
            return _ENOUGH_EVIDENCE + _MISSING_TERM
        return _ENOUGH_EVIDENCE + (_MISSING_NAME if missing else 0.0)


def _letters(term: str) -> float:
    """Return the length of a term; little for pairs from a Hiragana letter on, which are mostly grammar."""
    return len(term) / 4 if _IN_HIRAGANA.match(term) else len(term)


def _word_share(term: str) -> float:
    """Return how much of a word a term is: groups of letters overlap."""
    return _letters(term) / len(term) / (len(term) + 1) if UNSPACED.match(term) else 1.0


def names(text: str) -> Iterator[str]:
    """Yield the words with a capital letter, but for the first one, and those with several."""
    for word in WORD.finditer(text):
        is_capitalized = word[0][0].isupper() and bool(text[: word.start()].strip())
        if word[0].casefold() not in STOP_WORDS and (is_capitalized or TECHNICAL_TERM.search(word[0])):
            yield word[0]
