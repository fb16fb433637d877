"""Lines of a bill, what one question was measured to use, and what is assumed of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.prices import HOURS_PER_MONTH, Price
from infra.settings import FunctionSettings

QUESTIONS: Final = 1000
_KB, _GB = 1024, 10**9


@dataclass(frozen=True, slots=True)
class BillLine:
    """One line of a bill."""

    what: str
    arithmetic: str
    dollars: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One question, as measured; docs/performance.md."""

    own_ms: float = 19.2
    """CPU of the query function; the rest of its time it waits for the model."""
    log_bytes: int = 4_200
    answer_bytes: int = 12_535
    prompt_tokens: int = 979
    request_bytes: int = 4_196
    reply_bytes: int = 65_030
    message_bytes: int = 4_023
    writer_ms: float = 4.8
    writer_log_bytes: int = 694
    look_ms: float = 4.4
    init_s: float = 1.1
    """From the process's start to its first poll."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """What nobody here could measure."""

    answer_tokens: int = 300
    authorizer_ms: float = 2
    """It reads two headers; Lambda bills by the millisecond."""
    question_tokens: int = 20
    model_s: float = 4.0
    """300 tokens, the first after 0.7 s, 90 a second."""
    cold_percent: int = 1
    platform_log_bytes: int = 1_000
    """Lambda's own lines for an invocation: start, end, report."""
    access_log_bytes: int = 500
    metric_log_bytes: int = 430
    """Of a question's metrics that became CloudWatch's after ``Measured.log_bytes`` was measured."""
    writer_batches: int = 2
    """For a question: begin and end are stored by themselves while questions are rare."""
    traces: int = 3
    """For a question: the answer, and each batch. With more than one in a second, X-Ray samples."""


MEASURED: Final = Measured()
ASSUMED: Final = Assumed()


def total(lines: Sequence[BillLine]) -> float:
    """Dollars of a bill."""
    return sum(line.dollars for line in lines)


def money(dollars: float) -> str:
    """A price in full: "$0.20", "$0.0000133334"."""
    cents = f"${dollars:.2f}"
    return cents if float(cents[1:]) == dollars else f"${dollars:.10f}".rstrip("0")


def gb(settings: FunctionSettings) -> float:
    """Memory of a function, in the unit of Lambda's bill."""
    return settings.memory_mb / _KB


def monthly(what: str, price: Price, count: float = 1, unit: str = "") -> BillLine:
    """A month of something that is billed by hour or month."""
    hours = HOURS_PER_MONTH if price.unit == "hour" else 1
    arithmetic = f"{hours} h × " if price.unit == "hour" else ""
    arithmetic += f"{count:g}{unit} × " if count != 1 or unit else ""
    return BillLine(what, f"{arithmetic}{money(price.dollars)}", hours * count * price.each)


def times(what: str, count: float, price: Price) -> BillLine:
    """What a thousand questions use ``count`` of each."""
    per = f" / {price.per:,}" if price.per != 1 else ""
    dollars = QUESTIONS * count * price.each
    return BillLine(what, f"{QUESTIONS:,} × {count:g} × {money(price.dollars)}{per}", dollars)


def gigabytes(what: str, size: float, price: Price) -> BillLine:
    """What a thousand questions move ``size`` bytes of each."""
    dollars = QUESTIONS * size / _GB * price.each
    return BillLine(what, f"{QUESTIONS * size / 1e6:.1f} MB × {money(price.dollars)}/GB", dollars)
