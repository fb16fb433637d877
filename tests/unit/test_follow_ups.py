"""Follow-up queries without a model: whether one stands alone, and the words that expand it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.pipeline.follow_ups import expand, stands_alone
from vectorforge.pipeline.presets import history_of
from vectorforge.pipeline.types import HistoryMessage

PAIRS = [("Where do I buy a copper kettle?", "In the shop near the harbor.")]
KETTLE = history_of(PAIRS)

FOLLOW_UPS = [
    "How heavy is it?",
    "Can I return that?",
    "What happens after that?",
    "Are there heavier ones?",
    "Which one lasts longest?",
    "And the lid of steel?",
    "What about repairs of the handle?",
    "Without the wooden handle, please?",
    "Which material is cheaper for daily cooking?",
    "Why?",
    "For how long?",
    "Delivery costs?",
    "What is the price?",
    "Wie schwer ist er eigentlich?",
    "Und mit einem Deckel aus Stahl?",
    "Kann ich ihn nach dem Kauf zurückgeben?",
    "Wie lange dauert das?",
    "Wo in Norwegen baut man die?",
    "Et pour une bouilloire en acier ?",
    "¿Y cuánto cuesta la entrega?",
    "А сколько стоит доставка?",
    "它多重？",
    "那么不锈钢的价格是多少？",
    "それはどのくらい重いですか？",
    "그럼 배송은 얼마나 걸리나요?",
    "وكم تبلغ تكلفة توصيل الطلب إلى النرويج؟",
    "من ساعده في إنقاذها؟",
    "No, I meant kettles from the harbor museum",
    "ok thanks. how long does delivery to Norway take",
    "Danke! Welches Material rostet am wenigsten?",
]
STANDALONE = [
    "Where do I buy a copper kettle?",
    "Is there a warranty for copper kettles?",
    "Which harbor has the longest pier in Norway?",
    "What is cheaper than copper for kettles?",
    "In which town is the harbor museum?",
    "When did Edison die?",
    "What caused the war?",
    "Wo kann ich einen Wasserkessel kaufen?",
    "Où puis-je acheter une bouilloire ?",
    "¿Qué es un hervidor de cobre?",
    "在哪里可以买到铜水壶？",
    "銅のやかんはどこで買えますか？",
    "أين يمكنني شراء غلاية نحاسية؟",
    "ما اسم المتجر الذي تباع فيه غلايات النحاس؟",
    "so-called smart kettles compared with copper kettles from Norway",
]


@pytest.mark.parametrize("query", FOLLOW_UPS)
def test_follow_up_does_not_stand_alone(query: str) -> None:
    assert not stands_alone(query)


@pytest.mark.parametrize("query", STANDALONE)
def test_complete_query_stands_alone(query: str) -> None:
    assert stands_alone(query)


@pytest.mark.parametrize(
    ("query", "is_related"),
    [
        ("How heavy is it?", True),
        ("Does the kettle whistle loudly?", True),
        ("When does the harbor shop close?", True),  # a word of the answer
        ("Can engravings be ordered?", True),  # too few words to tell
        ("Which battle did he lose?", True),
        ("Who painted the Mona Lisa?", False),
        ("I mean, are they organized, not individually contracted with the recipients?", True),
    ],
)
def test_query_is_related_if_it_is_short_points_back_or_shares_a_word(query: str, is_related: bool) -> None:
    expansion = expand(query, KETTLE)
    assert expansion is not None
    assert expansion.is_related == is_related


def test_word_far_into_a_long_answer_does_not_make_a_query_related() -> None:
    answer = f"In the shop near the harbor. {'It is open. ' * 20} A painting of Lisa hangs there."
    expansion = expand("Who painted the Mona Lisa?", history_of([("Where do I buy a kettle?", answer)]))
    assert expansion is not None
    assert not expansion.is_related


@pytest.mark.parametrize(
    ("query", "is_related"),
    [
        ("莱茵河谷是如何形成的？", False),
        ("铜水壶的保修期有多长时间？", True),
        ("ラインの谷はどのようにしてできましたか", False),
    ],
)
def test_subject_of_query_without_spaces_is_new_if_it_shares_no_characters(
    query: str, is_related: bool
) -> None:
    expansion = expand(query, history_of([("在哪里可以买到铜水壶？", "港口附近的商店。")]))
    assert expansion is not None
    assert expansion.is_related == is_related


def test_pairs_of_characters_count_as_half_a_word() -> None:
    turn = "莱茵河谷在哪里可以买到铜水壶而且价格便宜质量好送货快付款也方便"
    expansion = expand("多重？", history_of([(turn, "港口附近的商店。")]))
    assert expansion is not None
    words = expansion.words.split()
    assert words[:3] == ["莱茵", "河谷", "在哪"]
    assert len(words) == 12


def test_only_words_that_the_query_lacks_are_added() -> None:
    expansion = expand("Does the kettle whistle?", KETTLE)
    assert expansion is not None
    assert expansion.words == "buy copper"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("In the harbor shop of Bergen [Source 1]. It sells kettles [2].", "harbor shop Bergen sells"),
        ("I don't have enough information to answer that question.", ""),
        (" ".join(f"word{number}" for number in range(9)), "word0 word1 word2 word3 word4 word5"),
    ],
)
def test_first_words_of_the_last_answer_are_searched_for(answer: str, words: str) -> None:
    expansion = expand("Does the kettle whistle?", history_of([("Where do I buy a kettle?", answer)]))
    assert expansion is not None
    assert (expansion.words, expansion.answer_words) == ("buy", words)


def test_turns_are_read_back_to_one_that_stands_alone_and_from_the_first() -> None:
    first, complete, elliptic = "Who sells tea in Bergen?", "Where do I buy a copper kettle?", "And its lid?"
    turns = history_of(
        [(first, "A."), ("Who painted the Mona Lisa?", "B."), (complete, "C."), (elliptic, "D.")]
    )
    expansion = expand("How heavy is it?", turns)
    assert expansion is not None
    assert expansion.words == "lid buy copper kettle sells tea Bergen"


def test_greeting_is_not_taken_for_the_first_turn() -> None:
    first, elliptic = "Where do I buy a copper kettle?", [("And the lid?", "A.")] * 3
    expansion = expand("How heavy is it?", history_of([("Hello!", "Hello!"), (first, "B."), *elliptic]))
    assert expansion is not None
    assert expansion.words == "lid buy copper kettle"


def test_at_most_four_turns_expand_a_query() -> None:
    turns = history_of([(f"And word{number}?", "Yes.") for number in range(9)])
    expansion = expand("And now?", turns)
    assert expansion is not None
    assert expansion.words == "word8 word7 word6 word0"


@given(st.text(max_size=300), st.lists(st.text(max_size=300), max_size=6))
def test_expansion_is_bounded(query: str, texts: list[str]) -> None:
    expansion = expand(query, [HistoryMessage("user", text * 20) for text in texts])
    if expansion is not None:
        assert len(expansion.words.split()) <= 4 * 12


def test_query_without_earlier_turn_of_the_user_is_not_expanded() -> None:
    assert expand("How heavy is it?", [HistoryMessage("assistant", "Hello!")]) is None
    assert expand("How heavy is it?", [HistoryMessage("user", " ")]) is None


@pytest.mark.parametrize(
    "text", ["thanks!", "Thank you", "danke", "Vielen Dank!", "ok", "ok danke", "merci", "谢谢！", "شكرا"]
)
def test_thanks_do_not_repeat_the_last_answer(text: str) -> None:
    turns = history_of([("Where do I buy a copper kettle?", "In Bergen.")])
    assert expand(text, turns) is None
    assert expand(f"{text}, and the lid?", turns) is not None
