"""Words and signs around numbers: units, magnitudes, numerals and months, in the most frequent languages."""

from collections.abc import Mapping
from typing import Final


def _table(lines: str) -> dict[str, str]:
    """``value: word word ...`` a line -> word -> value."""
    table: dict[str, str] = {}
    for line in lines.strip().splitlines():
        value, _, words = line.strip().partition(": ")
        table.update(dict.fromkeys(words.split(), value))
    return table


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

MAGNITUDES: Final[Mapping[str, int]] = {
    word: int(value)
    for word, value in _table(
        """
        100: hundred
        1000: k K thousand tausend mille mil
        1000000: M mn mln mio million millions millionen millón millones
        1000000000: B bn billion billions mrd milliarde milliarden milliard milliards
        1000000000000: trillion trillions tn billionen
        """
    ).items()
}

COUNTS: Final[Mapping[str, int]] = {
    word: int(value)
    for word, value in _table(
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
    ).items()
}
"""Numerals that are not another word in one of these languages (so without the Spanish "once")."""

MONTHS: Final[Mapping[str, int]] = {
    word: int(value)
    for word, value in _table(
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
    ).items()
}
