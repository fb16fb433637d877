"""Text extraction from every format and encoding."""

import hashlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from tests.support.documents import PAGE, PAGE_TEXT, one, pdf, reason, word_document
from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract import PartReader, extract, media, split
from vectorforge.ingestion.types import DocumentPart, ExtractedDocument, ExtractionLimits


class TestFormats:
    def test_plain_text_is_unchanged(self) -> None:
        text = "  Zürich\r\n\ttabs and  spaces \n\n"
        assert one(text.encode(), "notes.txt").text == text

    def test_markdown_title_is_first_heading(self) -> None:
        document = one(b"intro\n\n## Sub\n\n# The title ##\n\ntext", "a.md")
        assert (document.media_type, document.title) == (media.MARKDOWN, "The title")

    def test_html_with_main_is_read_with_headings(self) -> None:
        document = one(PAGE.encode(), "https://example.org/page.html?x=1")
        assert document.text == PAGE_TEXT
        assert document.title == "My page"

    def test_html_without_main_skips_navigation(self) -> None:
        text = one(b"<nav>menu</nav><header>top</header><p>body</p><footer>f</footer>", "a.htm").text
        assert text == "body"

    def test_html_in_child_process_reads_the_same(self) -> None:
        filler = "<p>" + "word " * 20_000 + "</p>"
        document = one(PAGE.replace("<h2>", filler + "<h2>").encode(), "a.html")
        assert document.text.startswith("# Install & run\n\nHello bold link text\nnext\n\nword word")
        assert document.text.endswith("outer\ninner")

    def test_html_with_meta_charset_is_decoded_by_it(self) -> None:
        page = '<meta charset="windows-1251"><p>Привет</p>'.encode("cp1251")
        assert one(page, "a.html").text == "Привет"

    def test_pdf_text_has_its_pages(self) -> None:
        document = one(pdf("First page", "", "Third page"), "report.pdf")
        assert document.title == "Report"
        found = [(document.text[span.start : span.end], span.location) for span in document.spans]
        pages = [(text, (location or {})["page"]) for text, location in found]
        assert pages == [("First page", 1), ("Third page", 3)]

    def test_docx_is_read_in_order(self) -> None:
        document = one(word_document(), "manual.docx")
        assert document.title == "Top"  # the visible title, before the property
        assert document.text.split("\n\n") == [
            "# Top",
            "## Install",
            "Before the table.",
            "- step",
            "left | right",
            "merged",
            "After it.",
        ]

    def test_separator_line_of_excel_is_no_header_of_a_table(self) -> None:
        assert one(b"sep=;\r\nname;price\r\nOil;3,5\r\n", "a.csv").text == "name: Oil; price: 3,5"

    def test_csv_rows_become_paragraphs(self) -> None:
        table = b'name;price\nApple;"1,5\n2"\n\nPear;2;extra\n'
        assert (
            one(table, "a.csv").text == "name: Apple; price: 1,5 2\n\nname: Pear; price: 2; column 3: extra"
        )

    def test_lines_above_the_header_of_a_table_are_paragraphs(self) -> None:
        table = b"\nSales 2026;;\nAs of May\n;;\nName;Share;Town\nAnn;1,5;Ulm\nBo;2,5;\n"
        document = one(table, "a.csv")
        assert document.text.split("\n\n") == [
            "Sales 2026",
            "As of May",
            "Name: Ann; Share: 1,5; Town: Ulm",
            "Name: Bo; Share: 2,5",
        ]
        assert [(span.location or {})["cells"][1] for span in document.spans] == [2, 3, 6, 7]

    def test_table_of_one_column_has_a_header(self) -> None:
        assert one(b"Name\nAnn\nBo\n", "a.csv").text == "Name: Ann\n\nName: Bo"
        assert one(b"Name\nAnn\nBo,Lee\n", "a.csv").text == "Name: Ann\n\nName: Bo; column 2: Lee"

    def test_tsv_rows_are_paragraphs(self) -> None:
        assert one(b"a\tb\n1,2\t3", "x", "text/tab-separated-values").text == "a: 1,2; b: 3"

    def test_media_type_precedes_extension_and_content(self) -> None:
        assert one(b"# a", "a.md", "text/plain; charset=utf-8").media_type == media.PLAIN
        assert one(b"# a", "a.md", "application/octet-stream").media_type == media.MARKDOWN
        assert one(b"<!DOCTYPE html><p>x", "download").media_type == media.HTML
        assert one(pdf("x"), "download").media_type == media.PDF
        assert one(word_document(), "download").media_type == media.DOCX
        assert one(b"key: value", "settings.yaml").media_type == media.PLAIN


def hash_of(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:16]


class TestRecords:
    def test_jsonl_line_is_a_document_with_unchanged_text(self) -> None:
        text = "  two  spaces\r\n\u2028and “quotes”\n"
        line = {"doc_id": "a/1", "title": "T", "text": text, "year": 1961, "tags": ["x"], "nested": {"a": 1}}
        file = (
            json.dumps(line, ensure_ascii=False) + "\n\n" + json.dumps({"content": "b", "metadata": {"k": 1}})
        )
        first, second = extract(file.encode(), source="corpus.jsonl")
        assert (first.source, first.title, first.text) == ("corpus.jsonl#a/1", "T", text)
        assert first.metadata == {"doc_id": "a/1", "year": 1961, "tags": ["x"]}
        assert (second.source, second.metadata) == (
            "corpus.jsonl#" + hash_of('{"content": "b", "metadata": {"k": 1}}'),
            {"k": 1},
        )

    def test_jsonl_with_equal_ids_has_unique_sources(self) -> None:
        parts = split(b'{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}', source="f.jsonl")
        assert [part.source for part in parts] == ["f.jsonl#1", "f.jsonl#1#2"]

    def test_jsonl_line_without_id_is_named_by_its_content(self) -> None:
        first = split(b'{"text": "a"}\n{"text": "b"}\nbroken\n{"text": "b"}', source="f.jsonl")
        second = split(b'{"text": "b"}\r\n', source="f.jsonl")
        b = "f.jsonl#" + hash_of('{"text": "b"}')
        assert [part.source for part in first][1:] == [b, "f.jsonl#3", b + "#2"]
        assert [part.source for part in second] == [b]
        assert {part.parent_source for part in first} == {"f.jsonl"}

    def test_jsonl_line_with_long_id_has_a_storable_source(self) -> None:
        [part] = split(json.dumps({"id": "x" * 3000, "text": "a"}).encode(), source="f.jsonl")
        assert len(part.source) == len("f.jsonl#") + 16

    # C33
    @pytest.mark.parametrize(
        "line", ["not json", "[1]", '{"title": "x"}', '{"text": 3}', '{"text": "a", "n": NaN}', "[" * 100_000]
    )
    def test_jsonl_with_bad_line_fails_for_that_line_only(self, line: str) -> None:
        parts = split(f'{{"text": "a"}}\n{line}\n{{"text": "b"}}'.encode(), source="f.jsonl")
        good, bad, also_good = parts
        assert reason(bad.content, bad.source, bad.media_type) == "unreadable"
        assert one(good.content, good.source, good.media_type).text == "a"
        assert one(also_good.content, also_good.source, also_good.media_type).text == "b"

    def test_jsonl_line_without_text_is_rejected_with_advice(self) -> None:
        with pytest.raises(ExtractionError, match=r"text, content or body: rename .* JSON or CSV"):
            extract(b'{"title": "x"}', source="f.jsonl")

    async def test_stored_title_is_one_line_without_controls(self) -> None:
        line = json.dumps({"text": "a", "title": " Price\n list \u202etxt.\u0007 می\u200cخواهم"})
        parts = [DocumentPart(line.encode(), "f#1", media.RECORD), DocumentPart(b"a", "f.txt", None)]
        read = await PartReader(ExtractionLimits()).read_all([(part, "two\tparts", {}) for part in parts])
        titles = [one.title for one in read if isinstance(one, ExtractedDocument)]
        assert titles == ["Price list txt. می\u200cخواهم", "two parts"]

    def test_jsonl_with_nul_or_surrogates_is_cleaned(self) -> None:
        line = rb'{"text": "a\u0000b\ud800c", "title": "t\u0000", "metadata": {"k\u0000": ["\udfff"]}}'
        document = one(line, "f#1", media.RECORD)
        assert (document.text, document.title) == ("a\ufffdb\ufffdc", "t\ufffd")
        assert document.metadata == {"k\ufffd": ["\ufffd"]}
        assert "Replaced 5 characters" in document.warnings[0]
        [warning] = one(rb'{"text": "a\u0000"}', "f#1", media.RECORD).warnings
        assert "Replaced 1 character that" in warning


class TestDecoding:
    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-8"])
    def test_unicode_encodings_are_detected(self, encoding: str) -> None:
        text = "Plain text with Ünïcode, long enough to tell.\n"
        document = one(text.encode(encoding), "a.txt")
        assert (document.text, document.warnings) == (text, ())

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.txt", "fu\u0308r Mo\u0308bel"),
            ("a.md", "# fu\u0308r Mo\u0308bel"),
            ("a.html", "<p>fu&#x308;r Mo&#x308;bel</p>"),
            ("a.csv", "name;place\nfu\u0308r;Mo\u0308bel"),
        ],
    )
    def test_letters_are_composed(self, name: str, content: str) -> None:
        text = one(content.encode(), name).text
        assert ("f\u00fcr" in text, "M\u00f6bel" in text) == (True, True)

    @pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.csv", "a.json", "a.jsonl"])
    def test_characters_without_width_are_removed_and_joiners_stay(self, name: str) -> None:
        words = "em\ufeffploy\u00adee pass\u2060word می\u200cخواهم a\u200db \u200eא\u200f"
        content = {"a.csv": f"name;place\n{words};x", "a.html": f"<p>{words}</p>"}.get(name, words)
        content = json.dumps({"text": words}, ensure_ascii=False) if ".json" in name else content
        assert "employee password می\u200cخواهم a\u200db \u200eא\u200f" in one(content.encode(), name).text

    def test_letters_of_pdf_are_composed_and_keep_their_place(self) -> None:
        pdfmetrics.registerFont(TTFont("Vera", "Vera.ttf"))
        out = io.BytesIO()
        canvas = Canvas(out, pageCompression=0)
        canvas.setFont("Vera", 12)
        canvas.drawString(72, 700, "Mo~bel")
        canvas.save()
        document = one(out.getvalue().replace(b"<007E>", b"<0308>"), "a.pdf")  # "~" is read as the mark
        assert document.text == "M\u00f6bel"
        assert document.spans[0].location is not None

    def test_declared_character_set_is_used(self) -> None:
        text = "日本語のテキスト"
        assert one(text.encode("shift_jis"), "a", "text/plain; charset=Shift_JIS").text == text

    @pytest.mark.parametrize("charset", ["rot13", "unicode_escape", "no-such", "idna"])
    def test_codec_that_is_no_character_set_is_ignored(self, charset: str) -> None:
        assert one(rb"a\u0041", "a", f"text/plain; charset={charset}").text == r"a\u0041"

    def test_windows_1252_is_guessed_with_warning(self) -> None:
        document = one("Grüße – “x” €".encode("cp1252"), "a.txt")
        assert document.text == "Grüße – “x” €"
        assert "Windows-1252" in document.warnings[0]

    @pytest.mark.parametrize(
        ("encoding", "text"),
        [
            ("cp932", "議事録\r\n\r\n次回の会議は①火曜日に開催します。"),
            ("euc_jp", "議事録。次回の会議は火曜日に開催します。資料を共有してください。"),
            ("gb18030", "订单号,客户,金额\r\n1001,王小明,380\r\n1002,李华,120"),
            ("cp950", "會議紀要:下次會議定於週二下午三點在三樓會議室舉行。"),
            ("cp949", "회의록: 다음 회의는 화요일 오후 세 시에 삼층 회의실에서 열립니다."),
            ("cp1251", "Протокол. Следующее собрание состоится во вторник."),
            ("cp1256", "محضر الاجتماع. تقرر عقد الاجتماع القادم يوم الثلاثاء."),
        ],
    )
    def test_encodings_of_other_scripts_are_guessed_with_warning(self, encoding: str, text: str) -> None:
        document = one(text.encode(encoding), "a.txt")
        assert document.text == text
        assert document.warnings[0].endswith(f"read as {encoding}.")

    @pytest.mark.parametrize(
        "text",
        [
            "Ärzte, Ämter, Äpfel, Ähren, Äste, Äther, Äcker, Ägypten",
            "“A” “B” “C” “D” “E”",
            "Hyvää päivää, äiti, yö",
        ],
    )
    def test_western_text_of_many_letters_with_accents_is_read_as_windows_1252(self, text: str) -> None:
        assert one(text.encode("cp1252"), "a.txt").text == text

    @pytest.mark.parametrize(
        ("charset", "encoding", "text"),
        [
            ("ISO-2022-JP", "iso2022_jp", "来週の会議"),
            ("Shift_JIS", "cp932", "①髙橋"),
            ("x-sjis", "cp932", "会議"),
            ("gb2312", "gb18030", "朱镕基"),
            ("ks_c_5601-1987", "cp949", "똠방각하"),
        ],
    )
    def test_names_of_character_sets_are_read_as_by_browsers(
        self, charset: str, encoding: str, text: str
    ) -> None:
        content = f"{text}\n".encode(encoding)
        document = one(content, "a", f"text/plain; charset={charset}")
        assert (document.text, document.warnings) == (f"{text}\n", ())

    def test_mostly_utf8_is_read_as_utf8(self) -> None:
        document = one("schön, Köln, Grüße ".encode() * 3 + b"\xff", "a.txt")
        assert document.text.endswith("Grüße \ufffd")
        assert "Replaced 1 character that cannot be decoded" in document.warnings[0]

    # faults.md row 34
    def test_nul_characters_are_replaced_and_counted(self) -> None:
        document = one(b"some\x00 text with two\x00 of them, and more", "a.txt")
        assert document.text == "some\ufffd text with two\ufffd of them, and more"
        assert "Replaced 2 " in document.warnings[0]

    @given(st.binary(max_size=300))
    def test_any_bytes_return_storable_text_or_a_typed_error(self, content: bytes) -> None:
        try:
            documents = extract(content, source="a.txt")
        except ExtractionError:
            return
        for document in documents:
            assert "\x00" not in document.text
            document.text.encode()
