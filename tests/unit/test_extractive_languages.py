"""Sentences and choices of the extractive provider in languages other than English."""

import pytest

from tests.unit.extractive_answers import answer
from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.llm.providers.quotations import split


@pytest.mark.parametrize(
    "sentences",
    [
        ["猫在睡觉。", "“狗在跑！”", "鸟呢？"],
        ["राम घर गया।", "वह सो गया।"],
        ["هل تنام القطة؟", "نعم، تنام."],
        ["Πού κοιμάται η γάτα;", "Στο κρεβάτι."],
        ["ድመቷ የት ትተኛለች፧", "አልጋ ላይ።"],
        ["Am 3. Oktober ist Feiertag, z. B. in Ulm.", "Danach nicht."],
        ["Er stieg in die 2. Bundesliga auf.", "Der 1. FC Köln blieb dort."],
        ["IV. Murad'ın ordusu 5. Süvari Kolordusu'yla bağlantı kurdu.", "Şehir alındı."],
        ["It began after World War II.", "Room 12.", "The end, see fig. 3."],
        ["Памятник на ул. Ленина весит около 5 тыс. тонн.", "Рядом парк им. Горького."],
        ["Mind. 3 Personen nach Abs. 2 der Hausordnung.", "Max. Gewicht: 5 kg.", "See Art. 5 of it."],
        ["O edifício é do arq. Raul Lino.", "Tel. 12 34.", "A sala tem 84 lugares."],
        ["Meld het aan, tel. 14 020.", "De voorzitter is dhr. ir. P.J. Janssen."],
        ["Kantor pusat di Jl. Sudirman.", "Arus bolak-balik 50 Hz.", "Kami memakai SQL.", "Itu cepat."],
        ["Nộp trước ngày 10.", "Tiền điện tính riêng.", "Trưởng ban là TS. Nguyễn Văn Hùng."],
        ["แมวกำลังนอนหลับอยู่บนเตียงในห้องของเด็กผู้หญิงคนนั้น", "สุนัขวิ่งเล่นอยู่ในสวน"],
    ],
)
def test_sentences_of_other_languages_are_split(sentences: list[str]) -> None:
    assert [piece.text for piece in split(" ".join(sentences))] == sentences


@pytest.mark.parametrize(
    "query", ["Wie alt ist der Turm?", "Wie hoch ist der Turm?", "Wie viel Turm ist alt?"]
)
async def test_query_for_a_value_prefers_a_sentence_with_a_number(query: str) -> None:
    text = "Der Turm ist alt und hoch, viel aus Stein. Der Turm ist alt und hoch, viel über 30 Meter."
    assert (await answer(query, text)).startswith("Der Turm ist alt und hoch, viel über 30 Meter.")


@pytest.mark.parametrize(
    ("query", "first", "wanted"),
    [
        (
            "En quelle année la tour fut-elle construite ?",
            "La tour fut construite par le roi.",
            "La tour fut construite en 1887.",
        ),
        ("Kule kaç yılında yapıldı?", "Kule kral için yapıldı.", "Kule 1887 baharında yapıldı."),
        (
            "В каком году построена башня?",
            "Башня построена королём в городе.",
            "Башня построена около 1887 года.",
        ),
        ("휴관일은 언제입니까?", "휴관일은 관장이 미리 정합니다.", "휴관일은 매주 월요일로 정합니다."),
        ("¿Cuántos pisos tiene la torre?", "La torre tiene pisos altos.", "La torre tiene veinte pisos."),
        ("Combien d'étages a la tour ?", "La tour a des étages hauts.", "La tour a vingt étages hauts."),
        ("Quanti piani ha la torre?", "La torre ha piani molto alti.", "La torre ha venti piani alti."),
        ("Quantos andares tem a torre?", "A torre tem andares altos.", "A torre tem vinte andares."),
        ("Hoeveel lagen heeft de toren?", "De toren heeft hoge lagen.", "De toren heeft zeven lagen."),
        ("Ile osób mieści wieża?", "Wieża mieści wiele osób.", "Wieża mieści siedem osób."),
        ("Сколько этажей имеет башня?", "Башня имеет много этажей.", "Башня имеет семь этажей."),
        ("Kulenin kaç katı var?", "Kulenin yüksek katı var.", "Kulenin yedi katı var."),
        ("Wann kommt die Müllabfuhr?", "Die Müllabfuhr kommt zu uns.", "Die Müllabfuhr kommt montags."),
        ("타워의 건설 연도는?", "타워의 건설 계획은 왕이 세웠다.", "타워의 건설 공사는 1887년에 끝났다."),
        ("برج در چه سالی ساخته شد؟", "برج به دستور شاه ساخته شد.", "برج حدود ۱۸۸۷ ساخته شد."),
    ],
)
async def test_answer_has_the_number_that_a_query_of_its_language_asks_for(
    query: str, first: str, wanted: str
) -> None:
    assert (await answer(query, f"{first} {wanted}")).startswith(wanted)


async def test_word_of_another_language_matches_its_forms() -> None:
    text = "Die Mannschaft spielte in Bonn. Der Verteidiger der Mannschaft stammt aus Kiel."
    assert (await answer("Wer war in der Mannschaft Verteidigung?", text)).startswith("Der Verteidiger")


@pytest.mark.parametrize(
    ("text", "own", "foreign"),
    [
        (
            "Первый музей города открыли при царе. Билет в музей стоит десять рублей, дети входят бесплатно.",
            "Сколько стоит билет в музей?",
            "Какой город открыли моряки, которые пересекли океан?",
        ),
        (
            "Το μουσείο της πόλης άνοιξε το χειμώνα. Το εισιτήριο κοστίζει δέκα ευρώ.",
            "Πόσο κοστίζει το εισιτήριο;",
            "Ποια πόλη χτίστηκε το χειμώνα;",
        ),
        (
            "संग्रहालय सर्दियों में शहर में खुला था। टिकट की कीमत दस रुपये है और बच्चे मुफ्त में आते है।",
            "टिकट की कीमत कितनी है?",
            "सर्दियों में कौन सा बंदरगाह जम गया?",
        ),
        (
            "Bảo tàng mở cửa vào mùa đông. Vé vào cửa có giá mười nghìn đồng và trẻ em được vào miễn phí.",
            "Vé vào cửa giá bao nhiêu?",
            "Tàu nào chở trẻ em vào mùa đông?",
        ),
        (
            "موزه شهر در زمستان باز شد. بلیت موزه ده تومان است و کودکان رایگان وارد می‌شوند.",
            "بلیت موزه چند تومان است؟",
            "کدام بندر در زمستان یخ زد؟",
        ),
        (
            "המוזיאון בעיר נפתח בחורף. מחיר הכרטיס למוזיאון הוא עשרה שקלים, והכניסה לילדים חינם.",
            "כמה עולה כרטיס במוזיאון?",
            "איזה נמל קפא בחורף?",
        ),
        (
            "美術館は冬の間、毎週月曜日に休館します。入館料は大人が十ユーロです。子どもは無料で入ることができます。",
            "美術館の入館料はいくらですか?",
            "船員は冬の間、無料でどの港に泊まりましたか?",
        ),
        (
            "미술관은 겨울 동안 월요일에 휴관합니다. 입장료는 십 유로입니다. 어린이는 들어갈 수 있습니다.",
            "입장료는 얼마예요?",
            "선원들은 겨울 동안 어느 항구로 들어갈 수 있었습니까?",
        ),
    ],
    ids=["Russian", "Greek", "Hindi", "Vietnamese", "Persian", "Hebrew", "Japanese", "Korean"],
)
async def test_query_about_another_subject_is_refused(text: str, own: str, foreign: str) -> None:
    assert await answer(own, text) != NO_ANSWER
    assert await answer(foreign, text) == NO_ANSWER


@pytest.mark.parametrize("query", ["错误{}是什么意思？", "エラー{}とは", "{}은 무엇입니까?", "{}คืออะไร"])
async def test_code_next_to_characters_without_spaces_is_found(query: str) -> None:
    text = "PAY-330: 卡已过期。カードの期限切れ。카드가 만료되었습니다."
    assert (await answer(query.format("PAY-330"), text)).startswith("PAY-330")
    assert await answer(query.format("PAY-331"), text) == NO_ANSWER


async def test_hebrew_words_match_without_their_particles() -> None:
    first, wanted = "הספרייה נמצאת ליד השוק.", "הרכבת מירושלים עוצרת בחיפה פעמיים ביום."
    assert (await answer("מתי יש רכבת לחיפה וירושלים?", f"{first} {wanted}")).startswith(wanted)


async def test_query_without_accents_finds_the_words_that_have_them() -> None:
    first, wanted = "O prazo de entrega de um pedido é curto.", "O prazo do empréstimo é de 21 dias."
    assert (await answer("Prazo de emprestimo", f"{first} {wanted}")).startswith(wanted)


@pytest.mark.parametrize(
    ("query", "other", "wanted"),
    [
        ("ISPARTA NASIL BİR ŞEHİR", "Konya geniş bir ovadır.", "Gülleri ısparta yetiştirir."),
        ("isparta neresidir", "Konya geniş bir ovadır.", "ISPARTA gül yetiştirir."),
        ("İSTANBUL'DA VAPUR", "Konya geniş bir ovadır.", "Vapurlar istanbul'da kalkar."),
        ("型番ABC123とは", "型番は背面にある。", "ＡＢＣ１２３は冷蔵庫である。"),
        ("型番ＡＢＣ-１２３とは", "型番は背面にある。", "ABC-123は冷蔵庫である。"),
        ("カタカナとは", "漢字は中国の文字である。", "ｶﾀｶﾅは日本の文字である。"),
        ("ﾊﾞﾅﾅとは", "林檎は赤い果物である。", "バナナは黄色い果物である。"),
    ],
)
async def test_words_match_in_other_width_and_without_turkish_dots(
    query: str, other: str, wanted: str
) -> None:
    assert (await answer(query, f"{other} {wanted}")).startswith(wanted)


async def test_words_for_may_and_have_need_not_be_in_the_text() -> None:
    wanted = "Huisdieren: Per woning zijn maximaal twee huisdieren toegestaan."
    others = [
        "Honden moeten in de gemeenschappelijke ruimtes aangelijnd zijn.",
        "Bezoekers parkeren aan de Kastanjelaan; een dagkaart kost € 4,50.",
    ]
    text = await answer("Hoeveel huisdieren mag ik hebben?", " ".join([wanted, *others]))
    assert text.startswith(wanted)


async def test_further_sources_do_not_cover_a_query_about_another_subject() -> None:
    texts = ["Билет в музей стоит десять рублей.", *[f"Зал номер {n} закрыт." for n in range(4)]]
    more = ["Моряки из города спят.", "Океан глубок.", "Музей открыли весной.", "Пересекая улицу, смотри."]
    query = "Какой город открыли моряки, пересекая океан?"
    assert await answer(query, *texts, *more) == NO_ANSWER
