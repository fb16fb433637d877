"""Patterns and words of texts: markup, ends of sentences, stop words, stems, kinds of questions."""

import re
from functools import lru_cache
from typing import Final

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
    どう
    """.split()  # noqa: SIM905
)
ABBREVIATION: Final = pattern_of(
    r"(?:\b(?:[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Lt|Sgt|Capt|Rev|Hon|Gov|Sen|Rep|No|Nos|Nr|Fig|Figs|Eq|Sec|"
    r"Vol|Ch|pp|vs|cf|ca|approx|etc|al|Inc|Ltd|Co|Corp|[Ee]\.g|[Ii]\.e|U\.S|U\.K|a\.m|p\.m|"
    r"bzw|bspw|evtl|ggf|inkl|usw|vgl|[Aa]bb|[Zz]\.\s?B|[Dd]\.\s?h|[Uu]\.\s?a|Mme|Mlle|env|Sra?|Dra|Ud|núm|т\.\s?е|г|гг))\.$"
)
ORDINAL: Final = pattern_of(r"(?<![\d.,:])[0-3]?\d\.$")
"""Number of a day in German and its neighbors, if a month follows."""
MONTH: Final = pattern_of(
    r"\s*(?:Jan|Jän|Feb|Mär|Mar|Apr|Mai|Maj|Jun|Jul|Aug|Sep|Okt|Nov|Dez|Jahrhundert|Jh)", re.IGNORECASE
)

NUMERIC_QUESTION: Final = pattern_of(
    r"\b(?:how (?:many|much|long|old|far|large|big|tall|high|often|fast|wide|deep)"
    r"|(?:what|which) (?:percent|percentage|number|year|date|day|month|decade|century)|when"
    r"|wie ?viele?|wann|combien|quand|cu[aá]nd?[nt]?[oa]s?|quant[oiae]|quando)\b",
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
    r"\b(?:how (?:do|can|should|must|does|is|are|to)|steps?|order|wie|comment|c[oó]mo)\b|如何|怎么",
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

FENCE: Final = pattern_of(r"\s*(```+|~~~+)")
INDENTED: Final = pattern_of(r"(?: {4}|\t)\s*\S.*[^.!?]$")
HEADING: Final = pattern_of(r"\s{0,3}#{1,6}\s")
UNDERLINE: Final = pattern_of(r"\s*(=+|-{2,})\s*$")
ITEM: Final = pattern_of(r"\A\s*(?:[-*+•]|(\d{1,3}[.)]))\s+")
# Of Markdown; "column: value; column: value" and "value | value" of other files (ingestion.extract.blocks).
ROW: Final = pattern_of(r"\s*\|.*\|\s*$|[^:;|]{1,80}: [^\n]*; [^:;|]{1,80}: \S|[^|]{1,200} \| \S")
RULE: Final = pattern_of(r"[\s|:*_=-]*$")
CELL_END: Final = pattern_of(r"(?<!\\)\|")
# Western: before white space and anything but a lower-case letter; footnote marks may follow. Thai and Lao
# mark no end but a space, which also separates phrases, so a short clause ends nothing.
SENTENCE_END: Final = pattern_of(
    r"[.!?…؟۔։](?:\[\d+\])*[\"'”’»)\]*_]*\s+(?=[^a-z\s])|[。！？｡।॥።។။།](?:\[\d+\])*[”’」』）]*\s*"
    r"|(?<=[\u0e00-\u0eff]{40})[ ]+(?=[\u0e00-\u0eff])"
)
CLOSING: Final = pattern_of(r"[\"'”’»)」』）*_]*")
FOOTNOTES: Final = pattern_of(r"(?:\[\^?\d{1,4}\])+$")
MARKER: Final = pattern_of(r"\A\s*(?:>\s*)*(?:[-*+•]\s+(?:\[[ xX]\]\s+)?)?")
"""Marker of a list item or a quotation."""
LABEL_LIKE: Final = pattern_of(r"\[(?:source|sources|context)?\s*\d[\d,; ]*\]", re.IGNORECASE)
COMMENT: Final = pattern_of(r"<!--.*?-->", re.DOTALL)
MARKUP: Final = pattern_of(
    r"!\[[^\]\n]{0,200}\]\([^)\n]{0,500}\)|\[(?P<link>[^\[\]\n]{1,300})\]\([^()\n]{0,500}(?:\([^()\n]{0,100}\))?[^()\n]{0,100}\)"
    r"|`(?P<code>[^`\n]{1,200})`|(?<![\w*])(?P<mark>\*{1,3})(?=[^\s*])(?P<strong>[^*\n]{0,300}[^\s*])(?P=mark)(?![\w*])"
    r"|(?<!\w)(?P<line>_{1,3})(?=[^\s_])(?P<italic>[^_\n]{0,300}[^\s_])(?P=line)(?!\w)"
    r"|</?(?P<inline>b|i|em|strong|code|kbd|sup|sub|span)(?:\s[^<>\n]{0,300})?>|</?(?:br|div|p|img)\b[^<>\n]{0,300}>|\n\s*>|\\(?P<escaped>[!-/:-@\[-`{-~])"
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


@lru_cache(maxsize=16_384)  # chunks share their words; at most about 2 MB
def stem(word: str) -> str:
    """Return a lower-case word without its ending; at least three letters stay."""
    for suffix, replacement in SUFFIXES if word.endswith(ENDINGS) else ():
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: len(word) - len(suffix)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]  # running, runs
    return word.removesuffix("e") if len(word) > 3 else word


def terms(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning; of scripts without spaces, pairs of characters."""
    if text.isascii():
        words = set(WORD.findall(text.lower()))
        return frozenset(map(stem, words - STOP_WORDS))
    words = set(MARKED_WORD.findall(text.lower()))
    stems: set[str] = set()
    for word in words - STOP_WORDS:
        if runs := UNSPACED.findall(word):
            pairs = {run[i : i + 2] for run in runs for i in range(max(1, len(run) - 1))}
            stems |= pairs - STOP_WORDS
        else:
            stems.add(stem(word))
    return frozenset(stems)


def all_terms(text: str) -> frozenset[str]:
    """Return the terms, and identifiers, paths and versions as a whole; of settings (A_B) only the whole."""
    return terms(SETTING.sub(" ", text)) | frozenset(EXACT.findall(text.lower()))
