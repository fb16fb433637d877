"""Values of the form fields of a PDF page, by pdfium."""

import ctypes
from collections.abc import Iterator
from typing import Any, Final

_MAX_FIELDS: Final = 50_000
_BOX_FIELDS: Final = (2, 3)  # FPDF_FORMFIELD_CHECKBOX, FPDF_FORMFIELD_RADIOBUTTON
_TEXT_FIELDS: Final = (4, 5, 6)  # ..._COMBOBOX, ..._LISTBOX, ..._TEXTFIELD
_PASSWORD: Final = 1 << 13  # of a text field's flags
_FIELD_LINE: Final = 12.0
"""Points of a field's height that its text takes."""


def field_values(page: Any) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    """Yield the values of form fields, and check boxes as characters, with left, bottom, right and top edge.

    Not by ``FPDFPage_Flatten``, which ends the process on some damaged forms (pdfium 159.0.8149).
    """
    from pypdfium2 import raw

    box = raw.FS_RECTF()
    for number in range(min(raw.FPDFPage_GetAnnotCount(page), _MAX_FIELDS) if page.formenv else 0):
        one = raw.FPDFPage_GetAnnot(page, number)
        is_shown = not raw.FPDFAnnot_GetFlags(one) & raw.FPDF_ANNOT_FLAG_HIDDEN
        if is_shown and raw.FPDFAnnot_GetRect(one, box) and (text := _field(page.formenv, one)):
            bottom = max(box.bottom, box.top - _FIELD_LINE)
            yield text, (box.left, bottom, box.right, box.top)
        raw.FPDFPage_CloseAnnot(one)


def _field(forms: Any, annotation: Any) -> str:
    from pypdfium2 import raw

    kind = raw.FPDFAnnot_GetFormFieldType(forms, annotation)
    if kind in _BOX_FIELDS:
        return "\u2612" if raw.FPDFAnnot_IsChecked(forms, annotation) else "\u2610"
    if kind not in _TEXT_FIELDS or raw.FPDFAnnot_GetFormFieldFlags(forms, annotation) & _PASSWORD:
        return ""
    size = raw.FPDFAnnot_GetFormFieldValue(forms, annotation, None, 0)
    value = (ctypes.c_ushort * (size // 2))()
    raw.FPDFAnnot_GetFormFieldValue(forms, annotation, value, size)
    return " ".join(bytes(value).decode("utf-16-le", "replace").replace("\0", " ").split())
