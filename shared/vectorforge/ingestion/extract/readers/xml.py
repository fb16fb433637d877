"""XML: a parser for hostile files, and the text of files of any vocabulary."""

from collections.abc import Iterator, Mapping
from posixpath import join, normpath
from typing import Any, Final
from zipfile import ZipFile

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Block, Reading, heading, paragraph
from vectorforge.ingestion.extract.decode import read_member

_TITLES: Final = ("title", "article-title", "name")
_MAX_TITLE_CHARS: Final = 200
_MARKUP: Final = ("id", "class", "style", "lang")
_MARKUP_NAMESPACES: Final = (
    "{http://www.w3.org/XML/1998/namespace",
    "{http://www.w3.org/2001/XMLSchema-instance",
)


def parse_xml(content: bytes) -> Any:
    """Return the root element. Entities, DTDs and network are off; nesting is limited by libxml2 (256).

    Raises:
        ExtractionError: ``unreadable``.
    """
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        return etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as exc:
        line = getattr(exc, "lineno", None)
        where = f" at line {line}" if line else ""
        raise ExtractionError(f"Invalid XML{where}; name the file .txt to store it as plain text.") from exc


def local_name(element: Any) -> str:
    """Return an element's name without its namespace; empty for entities."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def relations(archive: ZipFile, path: str) -> Mapping[str, tuple[str, str]]:
    """Return type and target of the internal relations of a part of an Office file, by id."""
    folder, _, name = path.rpartition("/")
    file = f"{folder}/_rels/{name}.rels"
    if file not in archive.NameToInfo:
        return {}
    return {
        relation.get("Id", ""): (
            relation.get("Type", ""),
            normpath(join("/", folder, relation.get("Target", ""))).lstrip("/"),
        )
        for relation in parse_xml(read_member(archive, file))
        if relation.get("TargetMode") != "External"
    }


def read_xml(content: bytes) -> Reading:
    """Read an XML file: an element with text among its elements is a paragraph, titles are headings.

    An element whose elements hold only text is a record, "name: value; name: value". Attributes are such
    pairs, too: of a record in front, of a text behind, of other elements as a paragraph.

    Raises:
        ExtractionError: ``unreadable``.
    """
    root = parse_xml(content)
    titles = (_text(child) for child in root.iter() if local_name(child).lower() in _TITLES)
    return Reading(_blocks(root), next(filter(None, titles), None))


def _blocks(root: Any) -> Iterator[Block]:
    pending: list[tuple[Any, int]] = [(root, 0)]
    while pending:
        element, depth = pending.pop()
        if isinstance(element, Block):
            yield element
            continue
        children = [*element.iterchildren("*")]  # not entities
        text = _text(element)
        is_text = not children or _is_mixed(element)
        attributes = _attributes(element, is_text and bool(text))
        pairs = "; ".join(f"{name}: {value}" for name, value in attributes)
        if _is_title(element, text):
            yield heading(text, max(depth, 1))
        elif is_text:
            yield paragraph(f"{text} ({pairs})" if text and pairs else text or pairs)
        elif all(not len(child) for child in children) and len({*map(local_name, children)}) > 1:
            yield paragraph("; ".join(_pairs(element)))
        else:
            below = [(child, depth + 1) for child in children]
            below.insert(_is_title(children[0], _text(children[0])), (paragraph(pairs), depth))
            pending += reversed(below)


def _is_title(element: Any, text: str) -> bool:
    is_title = not len(element) and local_name(element).lower() in _TITLES
    return is_title and 0 < len(text) <= _MAX_TITLE_CHARS


def _attributes(element: Any, has_text: bool) -> Iterator[tuple[str, str]]:
    """Yield names and values, without those of XML itself, and of a text without ids and styles."""
    for name, value in element.attrib.items():
        namespace, _, local = name.rpartition("}")
        is_markup = namespace in _MARKUP_NAMESPACES or (has_text and local.lower() in _MARKUP)
        if value.strip() and not is_markup:
            yield local, " ".join(value.split())


def _pairs(element: Any) -> Iterator[str]:
    for name, value in _attributes(element, has_text=False):
        yield f"{name}: {value}"
    for child in element.iterchildren("*"):
        text = _text(child)
        if values := [*filter(None, [text]), *(value for _, value in _attributes(child, bool(text)))]:
            yield f"{local_name(child)}: {', '.join(values)}"


def _is_mixed(element: Any) -> bool:
    return bool((element.text or "").strip()) or any((child.tail or "").strip() for child in element)


def _text(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())
