"""Optical character recognition (OCR) of pages by RapidOCR or tesseract, in the extraction child."""

import math
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple, TypeAlias

from vectorforge.errors import ExtractionError
from vectorforge.extras import how_to_install
from vectorforge.ingestion.extract.readers.pdf_words import Page, Segment, rotated
from vectorforge.ingestion.types import OcrOptions

SWITCH_ON: Final = "OCR can read it: `vectorforge ingest --ocr`, or the setting `ocr` of the collection."
_DOTS_PER_POINT: Final = 200 / 72
MAX_PIXELS: Final = 4_000_000
"""Limit of one rendered page, a byte each; A4 in 200 dpi has 3.9 million."""
_DETECTION_PIXELS: Final = 1_280
"""Long side of the picture in which RapidOCR looks for lines; 2,000 takes thrice as long for no more."""
_MIN_CONFIDENCE: Final = 30.0
"""Confidence of tesseract, 0 to 100: below are stains and pictures."""
_OVER_INK: Final = 1.25
"""Height of a font, from descent to ascent, in that of its letters' ink, which tesseract returns."""
_WIDE_GAP: Final = 1.5
"""Space between two columns, at least, in heights of the line."""
_STEP: Final = 1.5
"""Ratio of font heights that are distinguished: a line without ascenders and descenders seems smaller."""
_MIN_SKEW, _MAX_SKEW = math.radians(0.1), math.radians(15)


class Found(NamedTuple):
    """Line of text in an image, or its part in a column; in pixels."""

    text: str
    left: tuple[float, float]
    """Middle of the left edge."""
    right: tuple[float, float]
    height: float


_INSTALL = {"rapidocr": how_to_install("ocr"), "tesseract": "install tesseract (tesseract-ocr on Debian)"}

Engine: TypeAlias = Callable[[bytes, int, int], Iterable[Found]]
"""Recognizes an image, given its gray pixels, row by row, its width and its height."""


def engine_of(options: OcrOptions) -> Engine:
    """Return the engine to use.

    Raises:
        ExtractionError: ``not_deployed``: it is not installed.
    """
    wanted = ("rapidocr", "tesseract") if options.engine == "auto" else (options.engine,)
    if "rapidocr" in wanted and find_spec("rapidocr"):
        return _rapidocr()
    if "tesseract" in wanted and shutil.which("tesseract"):
        return _tesseract(options.languages)
    forced = "" if options.engine == "auto" else f" (VECTORFORGE_OCR_ENGINE is {options.engine})"
    raise ExtractionError(
        f"OCR needs {' or '.join(wanted)}{forced}, not installed here: "
        f"{', or '.join(_INSTALL[name] for name in wanted)}. On AWS the ingest function has no engine: "
        "recognize scans before the upload.",
        reason="not_deployed",
    )


def recognized(page: Any, engine: Engine) -> Page:
    """Return the text of a page of pypdfium2 as recognized from its picture.

    Raises:
        ExtractionError: The engine failed.
    """
    width, height = page.get_size()
    scale = min(_DOTS_PER_POINT, (MAX_PIXELS / max(width * height, 1)) ** 0.5)
    bitmap = page.render(scale=scale, grayscale=True)
    rows, stride = memoryview(bitmap.buffer).cast("B"), bitmap.stride
    pixels = b"".join(rows[at : at + bitmap.width] for at in range(0, stride * bitmap.height, stride))
    found = [*engine(pixels, bitmap.width, bitmap.height)]
    skew = _skew(found)
    usual = median([one.height for one in found for _ in one.text] or [1.0])
    segments = []
    for one in found:
        (x0, y0), (x1, y1) = (
            rotated(x / scale, y / scale, width, height, -skew) for x, y in (one.left, one.right)
        )
        letters = usual * _STEP ** round(math.log(one.height / usual, _STEP)) / scale
        middle = (y0 + y1) / 2
        segments.append(Segment(one.text, x0, middle - letters / 2, x1, middle + letters / 2, False))
    return Page(width, height, segments, is_recognized=True, skew=skew)


def _skew(found: Sequence[Found]) -> float:
    """Return the angle of most of the text; 0 if it is level or not sure."""
    angles = [
        math.atan2(one.right[1] - one.left[1], one.right[0] - one.left[0])
        for one in found
        if one.right[0] - one.left[0] > 5 * one.height
        for _ in one.text
    ]
    skew = median(angles or [0.0])
    return skew if _MIN_SKEW < abs(skew) < _MAX_SKEW else 0.0


def _rapidocr() -> Engine:
    """Return RapidOCR with the models in its package; given their paths, it never downloads others."""
    import numpy as np
    import rapidocr

    models = Path(rapidocr.__file__).parent / "models"
    recognize = rapidocr.RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.use_cls": False,
            "Det.model_path": str(next(models.glob("*_det_*.onnx"))),
            "Rec.model_path": str(next(models.glob("*_rec_*.onnx"))),
            "Rec.rec_batch_num": 1,  # a batch is as wide as its longest line
            "Det.limit_type": "max",
            "Det.limit_side_len": _DETECTION_PIXELS,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )

    def read(pixels: bytes, width: int, height: int) -> Iterator[Found]:
        try:
            result: Any = recognize(np.frombuffer(pixels, np.uint8).reshape(height, width))
        except MemoryError:
            raise
        except Exception as exc:  # OpenCV and ONNX Runtime raise many kinds
            raise ExtractionError("OCR failed on a page of the document.") from exc
        if result.boxes is None:
            return
        for text, ((ax, ay), (bx, by), (cx, cy), (dx, dy)) in zip(
            result.txts, result.boxes.tolist(), strict=True
        ):
            letters = max((math.dist((ax, ay), (dx, dy)) + math.dist((bx, by), (cx, cy))) / 2, 1.0)
            yield Found(text, ((ax + dx) / 2, (ay + dy) / 2), ((bx + cx) / 2, (by + cy) / 2), letters)

    return read


def _tesseract(languages: str) -> Engine:
    """Return the command ``tesseract``, which inherits the limits of this process."""
    command = ["tesseract", "stdin", "stdout", "-l", languages, "--dpi", "200", "tsv"]

    def read(pixels: bytes, width: int, height: int) -> Iterator[Found]:
        image = b"P5 %d %d 255\n" % (width, height) + pixels
        done = subprocess.run(command, input=image, capture_output=True, check=False)  # noqa: S603 - no shell, no text of a caller
        if done.returncode:
            raise ExtractionError(
                f"tesseract failed; are its data for VECTORFORGE_OCR_LANGUAGES={languages} installed?",
                reason="not_deployed",
            )
        yield from _lines(done.stdout.decode("utf-8", "replace"))

    return read


def _lines(table: str) -> Iterator[Found]:
    """Yield the lines in the output of tesseract, cut at wide gaps, without "|" for rules of tables.

    Its columns: level, page, block, paragraph, line, word, left, top, width, height, confidence, text.
    """
    rows = [row.split("\t") for row in table.splitlines()[1:]]
    rows = [row for row in rows if len(row) == 12 and row[11].strip(" |")]
    words = [row for row in rows if float(row[10]) >= _MIN_CONFIDENCE]
    for _, line in groupby(words, key=lambda row: row[1:5]):
        boxes = [([float(number) for number in row[6:10]], row[11]) for row in line]
        letters = max([1.0, *(box[3] for box, _ in boxes)])
        gaps = [after[0] - before[0] - before[2] for (before, _), (after, _) in pairwise(boxes)]
        cuts = [0, *(at for at, gap in enumerate(gaps, start=1) if gap > _WIDE_GAP * letters), len(boxes)]
        for part in (boxes[start:end] for start, end in pairwise(cuts)):
            (x0, y0, _, high), (x1, y1, wide, low) = part[0][0], part[-1][0]
            text = " ".join(word for _, word in part)
            yield Found(text, (x0, y0 + high / 2), (x1 + wide, y1 + low / 2), _OVER_INK * letters)
