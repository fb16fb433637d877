"""Closed lists of words: units, numerals, months; negations, quantifiers, opposites (English, German)."""

from collections.abc import Mapping, Sequence
from typing import Final


def _table(lines: str) -> dict[str, str]:
    """``value: word word ...`` a line -> word -> value."""
    table: dict[str, str] = {}
    for line in lines.strip().splitlines():
        value, _, words = line.strip().partition(": ")
        table.update(dict.fromkeys(words.split(), value))
    return table


def _numbers(lines: str) -> Mapping[str, int]:
    return {word: int(value) for word, value in _table(lines).items()}


UNITS: Final[Mapping[str, tuple[str, str]]] = {
    word: (kind, factor)
    for word, (kind, _, factor) in (
        (word, value.partition("*"))
        for word, value in _table(
            """
            percent*1: % percent percentage pct prozent pourcent
            time*1/1000: ms millisecond milliseconds millisekunden
            time*1: s sec secs second seconds sekunde sekunden seconde secondes segundo segundos 秒
            time*60: min mins minute minutes minuten minuto minutos 分钟 分
            time*3600: h hr hrs hour hours stunde stunden heure heures hora horas 小时 時間
            time*86400: d day days tag tage tagen jour jours día días dia dias 天 日間
            time*604800: week weeks woche wochen semaine semaines semana semanas
            months*1: month months monat monate monaten mois mes meses 个月
            months*12: year years jahr jahre jahren année années año años
            bytes*1: byte bytes
            bytes*1000: kb kilobyte kilobytes
            bytes*1000000: mb megabyte megabytes
            bytes*1000000000: gb gigabyte gigabytes
            bytes*1000000000000: tb terabyte terabytes
            bytes*1024: kib
            bytes*1048576: mib
            bytes*1073741824: gib
            bytes*1099511627776: tib
            length*1/1000: mm millimeter millimeters millimetre millimetres
            length*1/100: cm centimeter centimeters centimetre centimetres zentimeter
            length*1: m meter meters metre metres mètre mètres metro metros
            length*1000: km kilometer kilometers kilometre kilometres kilomètre kilomètres kilómetros
            length*1609.344: mi mile miles meile meilen
            length*0.3048: ft foot feet
            length*0.0254: inch inches
            mass*1/1000: mg milligram milligrams milligramm
            mass*1: g gram grams gramm
            mass*1000: kg kilo kilos kilogram kilograms kilogramm
            mass*1000000: t tonne tonnes tonnen
            mass*453.59237: lb lbs
            frequency*1: hz hertz
            frequency*1000: khz
            frequency*1000000: mhz
            frequency*1000000000: ghz
            celsius*1: °C
            fahrenheit*1: °F
            dollar*1: $ US$ usd dollar dollars
            euro*1: € eur euro euros
            pound*1: £ gbp
            yen*1: ¥ jpy yen
            rupee*1: ₹ inr
            franc*1: chf
            """
        ).items()
    )
}
"""Word or sign -> kind of quantity and factor to the kind's base unit."""

MAGNITUDES: Final = _numbers(
    """
    100: hundred
    1000: k K thousand tausend mille mil
    1000000: M mn mln mio million millions millionen millón millones
    1000000000: B bn billion billions mrd milliarde milliarden milliard milliards
    1000000000000: trillion trillions tn billionen
    """
)

COUNTS: Final = _numbers(
    """
    0: zero
    1: one
    2: two zwei deux dos
    3: three drei trois tres
    4: four vier quatre cuatro
    5: five fünf cinq cinco
    6: six sechs seis
    7: seven sieben siete
    8: eight acht huit ocho
    9: nine neun neuf nueve
    10: ten zehn dix diez
    11: eleven onze
    12: twelve zwölf douze doce
    13: thirteen dreizehn treize trece
    14: fourteen vierzehn quatorze catorce
    15: fifteen fünfzehn quinze quince
    16: sixteen sechzehn seize
    17: seventeen siebzehn
    18: eighteen achtzehn
    19: nineteen neunzehn
    20: twenty zwanzig vingt veinte
    30: thirty dreißig trente treinta
    40: forty vierzig quarante cuarenta
    50: fifty fünfzig cinquante cincuenta
    60: sixty sechzig soixante sesenta
    70: seventy siebzig setenta
    80: eighty achtzig ochenta
    90: ninety neunzig noventa
    """
)
"""Numerals that are not another word in one of these languages (so without the Spanish "once")."""

ORDINALS: Final[Mapping[str, str]] = _table(
    """
    1: first 1st erste ersten erster erstes
    2: second 2nd zweite zweiten zweiter zweites
    3: third 3rd dritte dritten dritter drittes
    4: fourth 4th vierte vierten vierter viertes
    5: fifth 5th fünfte fünften fünfter fünftes
    6: sixth 6th sechste sechsten sechster sechstes
    7: seventh 7th siebte siebten siebter siebtes
    8: eighth 8th achte achten achter achtes
    9: ninth 9th neunte neunten neunter neuntes
    10: tenth 10th zehnte zehnten zehnter zehntes
    """
)

MONTHS: Final = _numbers(
    """
    1: january januar janvier enero gennaio janeiro januari jan
    2: february februar février febrero febbraio fevereiro februari feb
    3: march märz mars marzo março maart mar
    4: april avril abril aprile apr avr
    5: may mai mayo maggio maio mei
    6: june juni juin junio giugno junho jun
    7: july juli juillet julio luglio julho jul
    8: august août agosto augustus aug
    9: september septembre septiembre settembre setembro sept sep
    10: october oktober octobre octubre ottobre outubro oct okt
    11: november novembre noviembre novembro nov
    12: december dezember décembre diciembre dicembre dezembro dec dez
    """
)

PLACES: Final[Mapping[str, frozenset[str]]] = {
    people: frozenset(places.split(" "))
    for people, _, places in (
        line.strip().partition(": ")
        for line in """
            american: america us usa united
            british: britain uk kingdom
            danish: denmark
            dutch: netherlands holland
            english: england
            finnish: finland
            french: france
            german: germany
            greek: greece
            irish: ireland
            norwegian: norway
            polish: poland
            portuguese: portugal
            scottish: scotland
            spanish: spain
            swedish: sweden
            swiss: switzerland
            turkish: turkey
            welsh: wales
        """.strip().splitlines()
    )
}
"""Adjective of a country that is not its name with an ending -> names of the country."""

FREQUENT: Final[Mapping[str, str]] = _table(
    """
    english: the and is are of to for with not that by from were have has it this on or be as can which
    german: der die das den dem und ist sind nicht ein eine einen einem einer mit für von im zu auf wird
    german: wurde wurden sich als auch bei aus nach bis zum zur sie oder durch
    other: le la les une et dans pour que qui est du au sur pas avec el los las del es y por con il che di
    other: della per non è gli een het van op zijn voor niet com para não os uma och är att som på inte
    other: ett af til og
    """
)
"""Frequent word -> language; "other" are Romance and further Germanic languages."""

PHRASES: Final[Mapping[str, str]] = {
    "at least": "atleast", "at most": "atmost", "up to": "atmost", "no more than": "atmost",
    "not more than": "atmost", "no later than": "until", "no less than": "atleast",
    "no fewer than": "atleast", "not only": "also", "not just": "also", "nicht nur": "also",
    "no one": "nobody", "no longer": "not", "each other": "mutually", "a few": "some", "a little": "some",
    "more or less": "about",
    "whether or not": "whether", "no matter": "regardless", "out of range": "invalid",
    "not necessarily": "sometimes", "less than": "atmost", "fewer than": "atmost", "more than": "atleast",
    "any more": "anymore", "bis zu": "atmost",
}  # fmt: skip
"""Phrases whose words mean something else alone, and one word for each."""

NEGATIONS: Final = frozenset(
    """
    not no never none nobody nothing neither nor nowhere without cannot nicht kein keine keinen keinem
    keiner keines nie niemals nichts niemand weder ohne
    """.split()  # noqa: SIM905
)
HIDDEN_NEGATIONS: Final = frozenset(
    """
    only except unless instead rather but though however refuse reject deny forbid forbidden prohibit
    prevent fail miss avoid exclude omit ignore skip drop disable impossible unable absent free alone
    remain still otherwise beyond until less few rarely hardly barely seldom differ different independent
    regardless leave leaves left lose lost stop end zero empty solely exclusively hidden withheld nur
    außer statt sondern fehlt verboten verhindert abgelehnt lack out unabhängig anders selten kaum
    bleibt remove restrict limit
    """.split()  # noqa: SIM905
)
"""Words that can say the same as a negation, or its opposite: with them a difference proves nothing."""
NEGATIVE_PREFIXES: Final = ("un", "in", "im", "ir", "non", "dis")

QUANTIFIERS: Final[Mapping[str, str]] = _table(
    """
    all: all every each always both entire whole everyone everything alle aller jeder jede jedes immer
    most: most mostly usually majority generally typically mainly meist meisten meistens überwiegend
    many: many numerous often frequently viele vieler häufig oft
    some: some several sometimes partly partially occasionally einige manche manchmal teilweise mehrere
    few: few rarely seldom hardly barely wenige wenigen selten kaum
    only: only solely exclusively merely nur ausschließlich lediglich
    """
)
"""Quantifier -> class."""
STRONGER: Final[Mapping[str, frozenset[str]]] = {
    "all": frozenset({"most", "many", "some", "few"}),
    "most": frozenset({"some", "few"}),
    "many": frozenset({"few"}),
    "few": frozenset({"all", "most", "many", "only"}),
    "some": frozenset(),
    "only": frozenset({"all"}),
}
"""Class -> classes of a source that do not support it; a weaker statement is supported."""

_OPPOSITES = """
    before earlier until prior preceding precedes vor vorher bevor früher | after later since following
    follows nach nachher nachdem später; atleast minimum minimal above over exceed exceeding mehr
    mindestens über | atmost maximum maximal below under within weniger höchstens unter; more greater
    larger bigger mehr größer | less fewer smaller weniger kleiner; increase rise rises rose risen rising
    grow grew grows growth climb raise raised gain erhöhen erhöht steigen steigt stieg wächst | decrease
    fall falls fell fallen shrink shrank decline drop reduce reduced sinken sinkt sank verringern
    schrumpft; high higher hoch hohe höher höhere | low lower niedrig niedrige niedriger tief; long longer
    lang länger längere | short shorter kurz kürzer kürzere; fast faster quick quicker quickly schnell
    schneller | slow slower slowly langsam langsamer; on an | off aus; best better besser beste besten |
    worst worse schlechter schlechteste; first erste ersten erster erstes | last final letzte letzten
    letzter letztes; largest biggest greatest highest most größte größten höchste | smallest least lowest
    kleinste kleinsten niedrigste; old older oldest alt älter älteste | new newer newest young younger
    jung jünger neu neue neuer; early früh | late spät; north northern northeast nord norden nördlich |
    south southern southeast süd süden südlich; east eastern ost osten östlich | west western westen
    westlich; begin begins began begun start starts started open opens opened beginnen beginnt begann
    öffnet | end ends ended finish finished stop stops stopped close closes closed enden endet endete
    schließt; win wins won victory defeated gewann gewinnt gewinnen | lose loses lost defeat verlor
    verliert verlieren; allow permit accept erlaubt erlauben gestattet | forbid forbidden prohibit deny
    denied reject refuse prevent verboten verbietet abgelehnt; include contain enthält | exclude omit
    lack; enable enabled aktiviert | disable disabled deaktiviert; inside internal innerhalb interne
    intern | outside external außerhalb externe extern; add adds added insert | remove removes removed
    delete deleted; same equal identical gleich gleiche gleichen | different verschieden unterschiedlich;
    public öffentlich | private secret privat geheim; optional | required mandatory compulsory; true wahr
    | false falsch; positive positiv | negative negativ; success succeed successful | failure fail
    unsuccessful; buy buys bought purchase kaufen kaufte | sell sells sold verkaufen verkaufte; upper
    obere | lower untere; majority mehrheit | minority minderheit; because wegen | despite trotz; import |
    export; warm hot heiß | cold cool kalt; strong stronger stark stärker | weak weaker schwach schwächer;
    often frequently häufig oft | rarely seldom selten; support supported | oppose opposed; left links |
    right rechts
"""
RELATIONS: Final = frozenset(
    """
    atleast atmost on an off aus over über under unter above below within since until bis after nach before
    vor because wegen following later earlier left right links rechts contain contains include includes
    including lost
    """.split()  # noqa: SIM905
)
"""Words of ``OPPOSITES`` that other words often replace, so that their absence says nothing."""
OPPOSITES: Final[Sequence[tuple[frozenset[str], frozenset[str]]]] = [
    (frozenset(one.split()), frozenset(other.split()))
    for one, _, other in (pair.partition("|") for pair in _OPPOSITES.split(";"))
]
"""Pairs of words that exclude each other between the same things; both sides in all their forms."""
