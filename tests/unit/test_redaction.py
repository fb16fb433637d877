"""Personal data and keys are masked in logs; other texts stay unchanged."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.pipeline.guardrails.log_text import redact

DIGITS = string.digits
ALNUM = string.ascii_letters + string.digits


def pick(rnd: random.Random, alphabet: str, length: int) -> str:
    return "".join(rnd.choice(alphabet) for _ in range(length))


def email(rnd: random.Random) -> str:
    name = rnd.choice(["anna.berg", "o'neil", "müller", "a+b", "x_y-z"]) + pick(rnd, DIGITS, 3)
    host = rnd.choice(["mail.", "web-", ""]) + pick(rnd, string.ascii_lowercase, 6)
    return f"{name}@{host}.{rnd.choice(['com', 'co.uk', 'de', 'museum'])}"


def phone(rnd: random.Random) -> str:
    a, b = pick(rnd, "123456789", 3), pick(rnd, DIGITS, 4)
    return rnd.choice(
        [
            f"+49 {a} {b}{a}",
            f"+1 ({a}) {a}-{b}",
            f"+44{a}{b}{a}",
            f"0049 {a} {b} {a}",
            f"({a}) {a}-{b}",
            f"{a}-{a}-{b}",
            f"{a}.{a}.{b}",
            f"0{a}/{b}{a}",
            f"0{a} {b} {a}",
            f"+33 1 {a[:2]} {b[:2]} {b[2:]} {a[1:]}",
        ]
    )


def card(rnd: random.Random) -> str:
    digits = [int(c) for c in rnd.choice(["4", "51", "37", "6011"])]
    length = 15 if digits == [3, 7] else 16
    digits += [rnd.randrange(10) for _ in range(length - 1 - len(digits))]
    doubled = sum(d if i % 2 else sum(divmod(2 * d, 10)) for i, d in enumerate(reversed(digits)))
    text = "".join(map(str, [*digits, -doubled % 10]))
    separator = rnd.choice(["", " ", "-"])
    return separator.join(text[i : i + 4] for i in range(0, len(text), 4))


def iban(rnd: random.Random) -> str:
    country, length = rnd.choice([("DE", 18), ("FR", 23), ("NO", 11), ("GB", 18)])
    rest = pick(rnd, DIGITS, length)
    number = int("".join(str(int(c, 36)) for c in f"{rest}{country}00"))
    text = f"{country}{98 - number % 97:02}{rest}"
    return rnd.choice([text, " ".join(text[i : i + 4] for i in range(0, len(text), 4))])


def key(rnd: random.Random) -> str:
    return rnd.choice(
        [
            f"sk-proj-{pick(rnd, ALNUM, 40)}",
            f"sk-ant-api03-{pick(rnd, ALNUM, 40)}",
            f"AKIA{pick(rnd, string.ascii_uppercase, 16)}",
            f"ghp_{pick(rnd, ALNUM, 36)}",
            f"xoxb-{pick(rnd, ALNUM, 24)}",
            f"AIza{pick(rnd, ALNUM, 35)}",
            f"vf_{pick(rnd, ALNUM, 43)}",
            f"eyJ{pick(rnd, ALNUM, 20)}.eyJ{pick(rnd, ALNUM, 30)}.{pick(rnd, ALNUM, 43)}",
            f"Bearer {pick(rnd, ALNUM, 32)}",
            f"password={pick(rnd, ALNUM, 12)}",
            f'"api_key": "{pick(rnd, ALNUM, 24)}"',
            f"postgresql://admin:{pick(rnd, ALNUM, 12)}@db/prod",
        ]
    )


def address(rnd: random.Random) -> str:
    part = rnd.randrange(1, 250)
    return rnd.choice(
        [
            f"10.0.{part}.7",
            f"192.168.{part}.{part}",
            f"2001:db8::{part:x}:1",
            f"fe80::1ff:fe23:{part:x}:890a",
            f"::ffff:10.1.2.{part}",
        ]
    )


KINDS = {"email": email, "phone": phone, "card": card, "iban": iban, "key": key, "ip": address}
AROUND = ("My data: {}, thanks", "({})", "{}", "Ist {} richtig?", "请联系{} 。", "a\n{}\nb", "is it “{}”.")


def test_redaction_masks_1000_generated_secrets() -> None:  # threat 20: 1,000 canaries
    rnd, left = random.Random(20), []
    for number in range(1_000):
        kind = list(KINDS)[number % len(KINDS)]
        planted = KINDS[kind](rnd)
        masked = redact(rnd.choice(AROUND).format(planted))
        secret = max(planted.replace("@db/prod", "").split(":"), key=len).split("=")[-1].strip(' "')
        if planted in masked or secret in masked or f"[{kind}]" not in masked:
            left.append((kind, planted, masked))
    assert left == []


@pytest.mark.parametrize(
    "text",
    [
        "How long must the dough rise? Two hours [Source 1], then 45 minutes at 230 degrees.",
        "Version 3.11.7 of 2024-01-15 10:30:00, build 20240115103000, RFC 9457, ISO 13616-1:2020.",
        "The order 123456789012 costs 1,234,567.89 EUR; 5 x 10^6; pages 100-200; 1-2-3.",
        "See https://docs.example/a/b?c=1#d and vector[1][2]; std::string; a::b; 12:30; 1:2.",
        "def f(x: int) -> str: return x @ y  # self.name, __init__, sha256",
        "The hash is 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.",
        "id 3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "1234 5678 9012 3456 is no card number: its last digit is wrong.",
        "DE00 1234 5678 9012 3456 78 is no IBAN.",
        "Water boils at 100 degrees; the kettle has 2,200 watts and 1.7 litres.",
    ],
)
def test_redaction_leaves_other_texts_unchanged(text: str) -> None:
    assert redact(text) == text


@given(st.text(max_size=300))
def test_redaction_twice_is_idempotent(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@pytest.mark.parametrize(
    "piece", ["a@", "1 ", "::", "eyJ", "sk-", "password=", "(1", "+1", "A1", "-----BEGIN PRIVATE KEY-----"]
)
def test_redaction_of_long_text_is_linear(piece: str) -> None:
    redact(piece * (100_000 // len(piece)))  # with a pattern that backtracks this would not end
