"""Detection of a document's language, and where it is left unknown."""

import pytest

from vectorforge.ingestion.extract import extract
from vectorforge.ingestion.language import detect_language, language_of, with_language
from vectorforge.ingestion.rows import RowMapping

TEXTS = {
    "ar": "يمكن للعملاء إرجاع المنتج خلال أربعة عشر يوما من تاريخ الشراء، ويسترد العميل كامل المبلغ المدفوع.",
    "de": "Kunden können das Gerät innerhalb von vierzehn Tagen zurückgeben und erhalten den Preis zurück.",
    "el": "Οι πελάτες μπορούν να επιστρέψουν το προϊόν εντός δεκατεσσάρων ημερών από την αγορά του.",
    "en": "Customers may return the device within fourteen days and receive the full price that they paid.",
    "es": "Los clientes pueden devolver el aparato en un plazo de catorce días y recuperar el precio pagado.",
    "fr": "Les clients peuvent rendre l'appareil dans un délai de quatorze jours et être remboursés.",
    "he": "לקוחות רשאים להחזיר את המכשיר בתוך ארבעה עשר ימים ולקבל בחזרה את מלוא המחיר ששילמו עבורו בחנות.",
    "hi": "ग्राहक चौदह दिनों के भीतर उपकरण वापस कर सकते हैं और उन्हें पूरी राशि वापस मिल जाएगी। यह नियम है।",
    "ja": "お客様は十四日以内に製品を返品することができ、支払った金額の全額が返金されます。",
    "ko": "고객은 구입한 날부터 십사일 이내에 제품을 반품할 수 있으며 지불한 금액을 전액 환불받습니다.",
    "ru": "Покупатель может вернуть прибор в течение четырнадцати дней и получить назад уплаченную сумму.",
    "th": "ลูกค้าสามารถคืนสินค้าได้ภายในสิบสี่วันและจะได้รับเงินคืนเต็มจำนวนที่ชำระไป",
    "tr": "Müşteriler cihazı on dört gün içinde iade edebilir ve ödedikleri ücretin tamamını geri alabilir.",
    "vi": "Khách hàng có thể trả lại thiết bị trong vòng mười bốn ngày và nhận lại toàn bộ số tiền đã trả.",
    "zh": "客户可以在购买后的十四天内退回产品，并获得已支付金额的全额退款。",
}


@pytest.mark.parametrize("language", TEXTS)
def test_sentence_of_language_is_detected(language: str) -> None:
    assert detect_language(TEXTS[language]) == language


# The last one by CLD3: Bosnian, with a probability of 0.62
@pytest.mark.parametrize(
    ("language", "text"),
    [
        (
            "id",
            "Pelanggan dapat mengembalikan produk dalam empat belas hari dan menerima kembali seluruh uang.",
        ),
        (
            "ms",
            "Pelanggan boleh memulangkan barang dalam tempoh empat belas hari dan menerima semula wangnya.",
        ),
        ("hr", "Kupci mogu vratiti uređaj u roku od četrnaest dana i dobiti natrag puni iznos."),
        ("hr", "Grad leži na rijeci Savi, a u njemu živi oko sto hiljada stanovnika prema popisu."),
    ],
)
def test_probability_divided_between_close_languages_suffices(language: str, text: str) -> None:
    assert detect_language(text) == language


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rückgabe",
        "今日は",
        "12.5 44.1 2026-11-26 10.0.0.1 " * 50,
        "https://example.org/rueckgabe/der/ware?und=der " * 20,
        "x_1 = f(y_2)[0]; {'k_3': 4}; " * 50,
    ],
    ids=["empty", "word", "greeting", "numbers", "addresses", "code"],
)
def test_text_without_enough_words_has_no_language(text: str) -> None:
    assert detect_language(text) is None


def test_long_text_has_the_language_of_most_of_it() -> None:
    text = TEXTS["en"] + "\n" + f"{TEXTS['de']}\n" * 200
    assert detect_language(text) == "de"


def test_chinese_with_latin_names_is_chinese() -> None:
    assert detect_language("PostgreSQL 数据库 " + TEXTS["zh"] + " Dolby Digital MPEG") == "zh"


@pytest.mark.parametrize("language", ["ar", "he", "hi", "ru"])
def test_title_in_another_script_does_not_tell_the_language(language: str) -> None:
    assert detect_language(f"Super Bowl 50\n\n{TEXTS[language]}") == language


def test_few_words_repeated_in_lines_of_json_have_no_language() -> None:
    line = 'event: content_block_delta\ndata: {"type": "content_block_delta", "text": "ello frien"}\n'
    assert detect_language(f"Text delta\n\nA text content block delta looks like:\n{line * 5}") is None


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Τα Gymnasien είναι σχολεία της δευτεροβάθμιας εκπαίδευσης στη Γερμανία.", "el"),
        ("Η Αθήνα είναι πόλη.", "el"),
        ("서울은 한국의 수도이다", "ko"),
        ("ราคาสินค้าวันนี้", "th"),
        ("თბილისი საქართველოს დედაქალაქია", "ka"),
        ("The angles α, β, γ and δ of the triangle are given.", None),
        ("α β γ δ ε", None),
    ],
)
def test_script_of_one_language_tells_it_also_in_short_texts(text: str, language: str | None) -> None:
    assert detect_language(text) == language


def test_given_language_is_not_replaced() -> None:
    assert with_language({"language": "fr"}, TEXTS["de"]) == {"language": "fr"}
    assert with_language({"team": "hr"}, TEXTS["de"]) == {"team": "hr", "language": "de"}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("pt-BR", "pt"),
        ("IW", "he"),
        ("in_ID", "id"),
        ("ji", "yi"),
        ("jw", "jv"),
        ("mo", "ro"),
        ("sh-Latn", "sr"),
    ],
)
def test_withdrawn_code_in_metadata_is_read_as_the_current_one(given: str, code: str) -> None:
    assert language_of({"language": given}) == code


def test_row_has_the_language_of_its_text() -> None:
    mapping = RowMapping(name="faq", key="id", text=("body",))
    document = mapping.document({"id": 1, "body": TEXTS["es"]})
    assert document is not None
    assert document.metadata == {"language": "es"}


def test_extracted_file_itself_has_no_language() -> None:
    [document] = extract(TEXTS["de"].encode(), source="a.txt")  # the pipeline adds it to the merged metadata
    assert "language" not in document.metadata
