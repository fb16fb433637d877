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

    An element whose elements hold only text is a record, "name: value; name: value", with its attributes.

    Raises:
        ExtractionError: ``unreadable``.
    """
    root = parse_xml(content)
    titles = (_text(child) for child in root.iter() if local_name(child).lower() in _TITLES)
    return Reading(_blocks(root), next(filter(None, titles), None))


def _blocks(root: Any) -> Iterator[Block]:
    pending = [(root, 0)]
    while pending:
        element, depth = pending.pop()
        children = list(element)
        text = _text(element)
        if not children and local_name(element).lower() in _TITLES and 0 < len(text) <= _MAX_TITLE_CHARS:
            yield heading(text, max(depth, 1))
        elif children and not _is_mixed(element):
            if all(not len(child) for child in children) and len({*map(local_name, children)}) > 1:
                yield paragraph("; ".join(_pairs(element)))
            else:
                pending += [(child, depth + 1) for child in reversed(children)]
        elif text or element.attrib:
            yield paragraph(text or "; ".join(_pairs(element)))


def _pairs(element: Any) -> Iterator[str]:
    for name, value in element.attrib.items():
        yield f"{name.rpartition('}')[2]}: {' '.join(value.split())}"
    for child in element:
        values = [
            *filter(None, (_text(child), *(" ".join(value.split()) for value in child.attrib.values())))
        ]
        if values:
            yield f"{local_name(child)}: {', '.join(values)}"


def _is_mixed(element: Any) -> bool:
    return bool((element.text or "").strip()) or any((child.tail or "").strip() for child in element)


def _text(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())
