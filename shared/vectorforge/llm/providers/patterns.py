"""Patterns of queries, texts and words, and stop words."""

import re
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
    どう 무엇 엇인 인가 가요 나요 하나 어떻 떻게 누구 구인 언제 어디 얼마 마나 어느 에서 니까 습니 니다 있나
    되나 까요 bạn bị bởi các có của được gì không là làm mà nào này nên nhiêu như những
    thế thì trong và vào với vì đã đâu để đó đang ở
    каком какого каким каких какими какую какому кого кому кем чем чего чему чём куда откуда этом этого этой
    этих который которого которой которым которую ποιες ποιοι ποιον ποιους ποιων ποιας ποιου πόσα πόσοι πόσες
    πόση πού ήταν έχει έχουν είχε μια μία ένα ένας ενός δεν θα ως κατά στους στις τις τους όταν αυτό αυτή
    कितना कितनी किसका किसकी किसके किसे किन कौनसा कौनसी सा सी गया गई गए हुआ हुई हुए होता होती होते करता करती
    करते करने किया जाता जाती जाते एक इस उस इन उन वह भी तो ही द्वारा लिए साथ तक jakiego jakiej jakim jakich jaką
    jakimi ile czym czego kogo komu skąd został została zostało zostały był była było były ne neyi kimin
    kimdir nedir hangisi oldu cine cum când unde cât câte câți câtă este sunt fost pentru
    mag heeft hebben posso pode nasil
    של את על מה מי מהו מהי מיהו מיהי מתי איפה היכן למה מדוע כיצד איך האם כמה איזה איזו אילו הוא היא הם
    היה הייתה היתה היו זה זו אשר או גם כי לא אל עם בין יש
    """.split()  # noqa: SIM905
)


def _words(spaced: str, unspaced: str = "") -> str:
    """Return an expression for any of these, the spaced ones as whole words; "_" stands for a space."""
    whole = rf"\b(?:{'|'.join(spaced.split())})\b"
    return "|".join((whole, *unspaced.split())).replace("_", " ")


_MEASURES: Final = "(?:viele?|lange?|alt|weit|groß|hoch|oft|schnell|breit|tief|schwer|teuer)"
"""German words after "wie" in a query for a value."""
NUMERIC_QUESTION: Final = pattern_of(
    _words(
        rf"""
        how_(?:many|much|long|old|far|large|big|tall|high|often|fast|wide|deep) when
        (?:what|which)_(?:percent|percentage|number|version|release|year|date|day|month|decade|century)
        wie_?{_MEASURES} wann welche[mns]?_(?:jahr|datum|tag|version|anteil)
        combien quand quel(?:le)?_(?:année|date|âge|jour|mois|siècle|nombre|pourcentage|version)
        cu[aá]nd?[nt]?[oa]s? qué_(?:año|fecha|día|mes|siglo|edad|número|porcentaje|versión)
        quant[oiae] quando (?:che|quale)_(?:anno|data|giorno|mese|secolo|età|numero|percentuale)
        quant[oa]s (?:que|qual)_(?:ano|data|dia|mês|século|idade|número|porcentagem|percentagem)
        câ(?:t|tă|ți|te) când ce_(?:an|dată)
        hoe_?(?:veel|lang|oud|groot|hoog|vaak|snel|ver) wanneer welke?_(?:jaar|datum)
        hur_(?:många|mycket|länge|gammal|stor|hög|ofta|långt) när vilket_(?:år|datum)
        hvor_(?:mange|meget|mye|længe|lenge|gammel|stor|højt?|høyt?|ofte|langt) hvornår når hvilket_år
        ile_(?:lat|osób|razy|wynosi|kosztuje|ma|jest|trwa) kiedy którym_roku
        kolik kdy kterém_roce hány mennyi mikor milloin montako kuinka_\w+
        сколько когда как(?:ом|ой|ого)_(?:году?|года|процент|дата|числа) скільки коли якому_році
        πόσ\w+ πότε ποι\w+_(?:έτος|χρονιά|χρονολογία|ημερομηνία)
        kaç\w* ne_(?:zaman|kadar) hangi_(?:yıl|tarih|gün|ay|yüzyıl)\w*
        berapa kapan bao_nhiêu bao_lâu khi_nào năm_nào ngày_nào mấy
        [وفب]?كم متى [أا]ي_(?:عام|سنة|تاريخ|يوم) چند چقدر چه_(?:زمانی|سالی|تاریخی|مقدار) כמה מתי
        """,
        """
        कितन[ेाी] कब किस_(?:वर्ष|साल|तारीख) 多少 多[久大高长長远遠] [几幾] 何时 何時 什[么麼]时候 什麼時候
        哪一?[年天] 年份         いつ 何[年月日人歳個回度倍分時円台本枚番階位] 何パーセント
        いく[つら] ど[のれ]くらい 언제 몇 얼마 [연년]도 어느_해
        กี่ เท่า(?:ไร|ไหร่|ใด) เมื่อ(?:ไร|ไหร่|ใด) ปี(?:ใด|ไหน|อะไร)
        """,
    ),
    re.IGNORECASE,
)
NUMERIC_ANSWER: Final = pattern_of(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|half|third|hundred|thousand"
    r"|million|billion|percent|century|decade|January|February|March|April|May|June|July|August|September"
    r"|October|November|December|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
    r"|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|hundert|tausend|Million(?:en)?|Prozent"
    r"|deux|trois|quatre|cinq|sept|huit|neuf|dix|cent|mille|dos|tres|cuatro|cinco|seis|siete|ocho|diez|cien"
    r"|tre|quattro|cinque|sette|otto|dieci|dois|duas|três|quatro|sete|oito|dez|cem|mil)\b"
    # of each language those that are no words of another one: no Spanish "once", French "onze", Turkish "on"
    r"|\b(?i:doce|quince|veinte|treinta|cincuenta|ciento|millón|millones|mitad|siglo|década|douze|quinze|vingt"
    r"|trente|quarante|cinquante|millions?|milliards?|moitié|siècle|décennie|nove|undici|dodici|venti|trenta"
    r"|cinquanta|cento|duemila|tremila|milion[ei]|metà|secolo|vinte|trinta|cinquenta|milhão|milhões|metade|século"
    r"|twee|drie|vijf|zes|zeven|negen|tien|twaalf|twintig|dertig|vijftig|honderd|duizend|miljoen|helft|eeuw"
    r"|dwa|dwie|dwóch|dwaj|trzy|trzech|trzej|cztery|czterech|pięć|pięciu|sześć|sześciu|siedem|siedmiu|osiem|ośmiu"
    r"|dziewięć|dziewięciu|dziesięć|dziesięciu|dwanaście|dwadzieścia|trzydzieści|tysiąc|tysiące|tysięcy|milion(?:y|ów)?"
    r"|połowa|wieku?|два|две|двух|трёх|три|трех|четыре|четыр[её]х|пять|пяти|шесть|шести|семь|семи|восемь|восьми|девять"
    r"|девяти|десять|десяти|двенадцать|двадцать|тридцать|сорок|сто|тысяч[аиу]?|миллион(?:а|ов)?|половин[ау]|века?"
    r"|iki|üç|dört|beş|(?-i:altı|kırk|elli)|yedi|sekiz|dokuz|yirmi|otuz|yüz|milyon|milyar|yüzde|yarısı|yüzyıl\w*)\b"
    r"|\b(?i:(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag|lundi|mardi|mercredi|jeudi|vendredi|samedi"
    r"|dimanche|lunes|martes|miércoles|jueves|viernes|sábado|domingo|lunedì|martedì|mercoledì|giovedì|venerdì|sabato"
    r"|domenica|maandag|dinsdag|woensdag|donderdag|vrijdag|zaterdag|zondag)s?|(?:segunda|terça|quarta|quinta|sexta)-feira)\b"
    r"|[一二三四五六七八九十百千万萬亿億两兩]+[年月日个個人次岁歲世种種名位]"
    r"|[月火水木金土日]曜|(?:星期|[周週])[一二三四五六日天]|[월화수목금토일]요일"
)
DURATION_QUESTION: Final = pattern_of(
    _words(
        """
        how_long wie_?lange (?:dauert|dauern) combien_de_temps durée cu[aá]nto_(?:tiempo|dura|tarda)
        quanto_(?:tempo|dura|demora) hoe_lang(?:e)? duurt hur_länge hvor_(?:længe|lenge) jak_długo jak_dlouho
        как_долго сколько_(?:времени|длится) πόσ[οη]_(?:καιρό|ώρα|διαρκεί) ne_kadar_sür\\w*
        berapa_lama bao_lâu
        """,
        """
        多久 多[长長]_?[时時][间間] 何(?:時間|分|秒|日間|週間|[かヶ]月|年間) どのくらいの(?:時間|期間)
        얼마나_(?:오래|걸)
        """,
    ),
    re.IGNORECASE,
)
DURATION_ANSWER: Final = pattern_of(
    _words(
        """
        (?:milli)?seconds? minutes? hours? (?:week|work|business_)?days? weeks? months? (?:half_a_)?years?
        decades? centur(?:y|ies) k?m kilomet(?:er|re)s? met(?:er|re)s? miles? feet
        Sekunden? Minuten? Stunden? (?:Werk|Arbeits|Kalender)?tage? tagen Wochen? Monate?n? Jahre?n? Meter
        Kilometer secondes? heures? jours? semaines? mois ans? années? segundos? minutos? horas? d[ií]as?
        semanas? m[eê]s(?:es)? años? anos? second[oi] minut[oi] or[ae] giorn[oi] settiman[ae] mes[ei] ann[oi]
        uren dagen weken maanden jaar timmar dagar veckor månader år timer dager dage uger måneder
        godzin\\w* dni tygodni\\w* miesi\\w+ lat минут\\w* час(?:а|ов)? дн(?:я|ей) день недел\\w+ месяц\\w*
        год(?:а|ов)? лет saat dakika gün hafta ay yıl menit jam hari minggu bulan tahun phút giờ ngày tuần
        tháng năm
        """,
        "[秒分时時日天周週月年][钟鐘间間]?_?[内內]? 小时 小時 ヶ月 か月 [초분일주월년]",
    ),
    re.IGNORECASE,
)
"""Unit of time or length, which stands with a value (``NUMERIC_ANSWER``)."""
NAME_QUESTION: Final = pattern_of(
    r"\b(?:who|whom|whose|where"
    r"|(?:what|which) (?:city|country|state|person|team|company|school|university|name))\b",
    re.IGNORECASE,
)
DEFINITION_QUESTION: Final = pattern_of(
    r"\A\W*(?:what(?:(?:'s|’s|s| is| are)\b| does .{1,60} (?:do|mean|stand for|refer to)\b)|qu['’]est-ce"
    r"|c['’]est quoi\b|[àa] quoi sert|was (?:ist|sind|macht)\b|o que (?:é|são)\b|qu[eé] (?:es|son|hace)\b"
    r"|(?:che )?cos['’]è|wat (?:is|zijn)\b|vad är\b|hvad? er\b|co to (?:jest|są)\b|что такое\b)|\bnedir\b"
    r"|とは|って(?:何|なに)|是什[么麼]|什[么麼]是|이?란 (?:무엇|뭐)",
    re.IGNORECASE,
)
"""Query for what something is or does."""
DEFINITION: Final = pattern_of(
    r"\s(?:is|are|means?|stands? for|refers? to|est|sont|désigne|ist|sind|bezeichnet|é|são|es|son|è|sono|zijn"
    r"|är|er|jest|to|это)\s|\s[-–—]\s|とは|は|是|指|[은는란]\s",
    re.IGNORECASE,
)
"""Words between a name and its definition."""
PROCEDURE: Final = pattern_of(
    r"\b(?:how (?:do|can|should|must|does|is|are|to)|step|order|comment|c[oó]mo)\b|如何|怎么"
    rf"|\bwie\b(?! {_MEASURES}\b)|\b(?:jak|как|πώς|nasıl|hoe|hur|hvordan|bagaimana|thế nào)\b"
    "|كيف|कैसे|どう(?:すれば|やって)|어떻게|อย่างไร",
    re.IGNORECASE,
)
"""Query about a procedure."""
STEPS: Final = pattern_of(
    r"\b(?:steps|schritte|étapes|pasos|passos|passaggi|stappen|steg|trin|kroki|шаг(?:и|ов)|βήματα|adımlar|langkah"
    r"|bước)\b|步骤|步驟|手順|단계|ขั้นตอน|चरण|خطوات",
    re.IGNORECASE,
)
"""Query for the steps of a procedure."""
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

NAMED: Final = pattern_of(r"(?=[^:]*[^\W\d_])([^:]{1,40}?)(?:: | [-–—] )")
"""Name that an item explains: "dev: ...", "API - ..."."""
FENCE: Final = pattern_of(r"\s*(```+|~~~+)")
INDENTED: Final = pattern_of(r"(?: {4}|\t)\s*\S.*[^.!?]$")
NESTED: Final = pattern_of(r"(?m)^([ \t]*)\S.*[:{(\[]\n\1(?: {2}|\t)")
"""Line of code or data that opens what the deeper indented ones have: "def name():"."""
FIELD: Final = pattern_of(
    r"[*_]{0,2}(?![a-zß-öø-ÿ])[^\W\d_][\w/()-]{0,30}(?: [\w/()-]{1,30}){0,2}[*_]{0,2}"
    r"(?::[*_]{0,2}\s+|：[*_]{0,2}\s*)\S"
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
    r"!\[[^\]\n]{0,200}\]\([^)\n]{0,500}\)|\[(?P<link>[^\[\]]{1,300})\]\([^()\n]{0,500}(?:\([^()\n]{0,100}\))?[^()\n]{0,100}\)"
    r"|<(?P<address>(?:https?://|mailto:)[^<>\s]{1,500}|[\w.+-]{1,64}@[\w.-]{1,255})>|~~[^~]{1,300}~~"
    r"|(?<![\w\]])\[(?P<reference>[^\[\]]{1,300})(?<!\d)\]\[[^\[\]\n]{0,80}\]"
    r"|`(?P<code>[^`\n]{1,200})`|(?<![*])(?<![^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])(?P<mark>\*{1,3})(?=[^\s*])"
    r"(?P<strong>[^*]{0,300}[^\s*])(?P=mark)(?![*])(?![^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])"
    r"|(?<!\w)(?P<line>_{1,3})(?=[^\s_])(?P<italic>[^_]{0,300}[^\s_])(?P=line)(?!\w)"
    r"|</?(?P<inline>b|i|u|em|strong|code|kbd|sup|sub|span)(?:\s[^<>\n]{0,300})?>|</?(?:a|br|button|d[dlt]|details|div|fig(?:ure|caption)|h[1-6r]|iframe|img|li|[ou]l|p|summary|t[dhr])\b[^<>]{0,300}>|\n\s*>|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<entity>&(?!(?:lt|gt|amp);)#?[A-Za-z0-9]{2,8};)"
)
NEEDS_CODE: Final = pattern_of(r"[*<>\[\]|\\]|\b__|(?<!\w)_|_(?!\w)")
"""Inline code that would be read as markup without its marks."""

WORD: Final = pattern_of(r"[^\W_]+")
MARKED_WORD: Final = pattern_of(
    r"(?:[^\W_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u109f\u1780-\u17d3])+"
)
"""Word with the vowel signs of Hebrew, Arabic, Indian and south-east Asian scripts."""
OTHER_WIDTH: Final = pattern_of(r"[\uff01-\uff5e\uff66-\uffdc]+")
"""Full-width forms of ASCII, half-width ones of Japanese and Korean."""
EXACT: Final = pattern_of(r"(?<!\w)[$@#/.-]{0,2}+[^\W_]++(?:[-._/:$]{1,3}+[^\W_]++)++|[$@]\w++")
"""Identifiers, paths and versions, which also count as a whole."""
IDENTIFIER: Final = pattern_of(r"[^\W\d_]+-?\d")
"""Start of a code such as E05 or PAY-330; "1960s" is none."""
CODE: Final = pattern_of(r"[^\W\d_]{1,3}\d+\Z|[^\W\d_]+(?:-\d+)+\Z")
"""Code whose other spellings are known; "covid19" is also written COVID-19."""
ACRONYM: Final = pattern_of(r"[A-ZΑ-ΩЀ-Я]{2,8}")
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
FIRST_SYLLABLE: Final = "\u1800"
"""Scripts without spaces before it write letters (Thai, Lao, Burmese, Khmer), those after it syllables."""
START: Final = 5
"""Letters by which words of another script are compared; 6 found less in Arabic."""
IN_HIRAGANA: Final = pattern_of(r"[\u3040-\u309f]")
KANA_OR_HANGUL: Final = pattern_of(r"[\u3040-\u30ff\uac00-\ud7a3]")
"""Japanese and Korean, whose words have endings: more of a query stands in any text than in Chinese."""
ARABIC: Final = pattern_of(r"\A(?!.*[\u067e\u0686\u0698\u06a9\u06af\u06cc]).*[\u0600-\u06ff]", re.DOTALL)
"""Arabic, which writes further prefixes onto words; Persian and Urdu, with letters of their own, do not."""
VIETNAMESE: Final = pattern_of(r"[ơưẠ-ỹ]")
"""Letters of Vietnamese alone, which writes syllables as words; each says less than a word."""
PARTICLES: Final = pattern_of(
    r"\A(?:[\u0648\u0628\u0643\u0641]?(?:\u0627\u0644|\u0644\u0644)(?=\w{3})"
    r"|[\u05d1\u05d4\u05d5\u05db\u05dc\u05de\u05e9]+(?=[\u05d0-\u05ea]{3}))"
)
"""Prefixes of Arabic and Hebrew words: the article, "and", "in"."""

ABBREVIATION: Final = pattern_of(
    r"\b(?:[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Lt|Sgt|Capt|Rev|Hon|Gov|Sen|Rep|No|Nos|Nr|[Ff]igs?|[Ee]q|[Ss]ec|"
    r"[Vv]ol|Ch|pp|vs|cf|ca|approx|etc|al|Art|Inc|Ltd|Co|Corp|bzw|bspw|evtl|ggf|inkl|usw|vgl|[Aa]bb|Mme|Mlle|MM|env|Sras?|"
    r"Dra|Uds?|núm|pág|Gral|sig|dott|cfr|bijv|dhr|mevr|ul|św|ks|inż|sv|tzv|Doç|Yrd|Cad|Sok|Bkz|bkz|гг|им|ул|стр|рис|"
    r"табл|акад|проф|св|ред|просп|обл|[Tt][eé]l|[Tt]lf|[Aa]vd?a?|[Ii]r|[Ii]ng|[Dd]rs|arq|eng|geom|Exm[ao]|Mah|Uzm|TS|"
    r"ThS|PGS|(?<!\d[ \u00a0])[BCDFGHJ-NP-TV-XZ][bcdfghj-np-tv-xz]{1,3})\.$"
)
"""Mostly before a name or a number; single letters are initials and parts of "e.g." and "z. B.".
Words with a capital and no vowel, "Jl. Sudirman", are no words of a language but after a number: "50 Hz."."""
ORDINAL: Final = pattern_of(r"(?<![\d.,:])(?:\d{1,2}|[IVX]{2,5})\.$")
"""Number that may be an ordinal: "3. Oktober", "IV. Murad"."""
ORDINAL_LANGUAGE: Final = pattern_of(
    r"[ğıİşěřůłőűæøčšžþßäöü]|\b(?:der|die|das|dem|den|und|im|am|vom|zu[mr]|beim)\b"
)
"""Letters and words of languages that write ordinals with a full stop: German, Turkish, Czech, Danish."""
CHARS_PER_MARK: Final = 100
"""Longest text per such letter or word in these languages, whose texts have two or more of them in it."""
SHORT_WORD: Final = pattern_of(r"\b[A-ZÄÖÜ][^\W\d_]{1,3}\.$")
"""Mostly an abbreviation if a number follows: "Art. 5"."""
MONTH: Final = pattern_of(
    r"\s*(?:Jan|Jän|Feb|Mär|Mar|Apr|Mai|Maj|Jun|Jul|Aug|Sep|Okt|Nov|Dez|Jahrhundert|Jh)", re.IGNORECASE
)
# Western: before white space and anything but a lower-case letter; footnote marks may follow. Thai and Lao
# mark no end but a space, which also separates phrases, so a short clause ends nothing.
SENTENCE_END: Final = pattern_of(
    r"(?:[.!?…؟۔։፧]|(?<=[\u0370-\u03ff\u1f00-\u1fff])[;\u037e])(?:\[\d+\])*[\"'”’»)\]*_]*\s+(?=[^a-z\s])"
    r"|[.!?]\"{3}[ \t]*\n|[。！？｡।॥።។။།](?:\[\d+\])*[”’」』）]*\s*"
    r"|(?<=[\u0e00-\u0eff]{40})[ ]+(?=[\u0e00-\u0eff])"
)
CLAUSE: Final = pattern_of(r"[\u0e00-\u0eff]{40}\Z")
"""End of a Thai or Lao sentence, which has no full stop."""
CLOSING: Final = pattern_of(r"[\"'”’»)」』）*_]*")
FOOTNOTES: Final = pattern_of(r"(?:\[\^?\d{1,4}\])+$")
FOOTNOTE: Final = pattern_of(r"(?<=[^\s\[(])\[(\d{1,3})\]")
"""Mark of a footnote within a sentence, or an index: argv[1]."""
VARIABLE: Final = pattern_of(r"[A-Za-z_]\w*$", re.ASCII)
MARKER: Final = pattern_of(r"\A\s*(?:>\s*)*(?:[-*+•‣▪◦●]\s+(?:\[[ xX]\]\s+)?)?")
"""Marker of a list item or a quotation."""
