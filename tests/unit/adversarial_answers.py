"""Answers with wrong citations, and correct ones that are spelled differently from their source."""

from tests.support.rag.chunks import make_chunk as passage

PASSAGES = [
    passage(
        "Customers may return goods within 30 days of delivery. The fee is 4.50 EUR, refunds of more than "
        "1,250 EUR need approval by Maria Lopez in Madrid. About 12% of orders are returned.",
        source="returns.md",
    ),
    passage(
        "The uploader retries three times, 500 ms apart, then writes to `dead_letter_queue`. Set "
        "`max_retries` or pass --retry-limit; files over 5 GB are refused. It runs on AWS Lambda with "
        "Python 3.12.4. See https://docs.example.com/upload/retries for details.",
        source="uploader.md",
    ),
    passage(
        "Acme Robotics was founded on 14 March 1998 in Zurich by Jean Dupont. In 2023 it employed 2.4 "
        "million hours of labour and lost -3 million dollars. Support is open from 9:30 to 17:00. [Source 9] "
        "says otherwise.",
        source="https://acme.example/history",
    ),
    passage(
        "Die Frist beträgt 14 Tage. Der Vertrag mit der Nordwind Energie wird von Klara Neumann verwaltet "
        "und kostet 1.234,50 € im Jahr. Die Kündigung ist bis zum 31.12.2025 möglich.",
        source="vertrag.md",
    ),
    passage("One million items, version 1.2.30, 1,000,000 in all.", source="items.md"),
]
"""Sources labeled 1 to 5."""

# Answer -> numbers of the sources whose citation must be rejected; None stands for a label out of range.
ADVERSARIAL: list[tuple[str, list[int | None]]] = [
    # numbers
    ("Goods can be returned within 60 days [Source 1].", [1]),
    ("Goods can be returned within 30 hours [Source 1].", [1]),
    ("The fee is 45 EUR [Source 1].", [1]),
    ("The fee is 4.50 USD [Source 1].", [1]),
    ("Refunds above 12,500 EUR need approval [Source 1].", [1]),
    ("About 21% of orders are returned. [Source 1]", [1]),
    ("About 12 of the orders were returned, 30% of them late [Source 1].", [1]),
    ("The uploader retries five times [Source 2].", [2]),
    ("Retries are 500 s apart [Source 2].", [2]),
    ("Files over 5 MB are refused [Source 2].", [2]),
    ("Acme lost 3 million dollars, that is -4 million less than planned [Source 3].", [3]),
    ("Acme employed 2.4 billion hours [Source 3].", [3]),
    ("The result was 3.5 million dollars [Source 3].", [3]),
    ("Die Frist beträgt vierzehn Stunden, also 14 Stunden [Source 4].", [4]),
    ("Der Vertrag kostet 1.324,50 € im Jahr [Source 4].", [4]),
    ("期限为15天 [Source 4]。", [4]),
    # dates and times
    ("Acme was founded on 14 April 1998 [Source 3].", [3]),
    ("Acme was founded on 1998-03-15 [Source 3].", [3]),
    ("It was founded in March 1989 [Source 3].", [3]),
    ("Support closes at 5:30 pm [Source 3].", [3]),
    ("Die Kündigung ist bis zum 30.12.2025 möglich [Source 4].", [4]),
    # names
    ("Large refunds are approved by Mario Gomez [Source 1].", [1]),
    ("Approval comes from Maria Lopez in Lisbon [Source 1].", [1]),
    ("It was founded by Jean Dupont in Geneva [Source 3].", [3]),
    ("The company, Apex Robotics, is from Zurich [Source 3].", [3]),
    ("Der Vertrag mit der Südwind Energie läuft weiter und ist gültig [Source 4].", [4]),
    ("Acme was founded in Zurich [Source 3], and Acme retries uploads [Source 2].", [2]),
    ("Zurich is where refunds are approved [Source 1].", [1]),
    # identifiers, code and addresses
    ("Set `max_attempts` to change it [Source 2].", [2]),
    ("Pass --retry-count to change it [Source 2].", [2]),
    ("Failed files go to dead_letter_topic [Source 2].", [2]),
    ("It runs on GCP [Source 2].", [2]),
    ("It needs Python 3.12.5 [Source 2].", [2]),
    ("See https://docs.example.com/upload/limits [Source 2].", [2]),
    ("See https://evil.example/upload/retries [Source 2].", [2]),
    # labels
    ("Goods can be returned within 30 days [Source 6].", [None]),
    ("Acme was founded in 1998 [Source 9].", [None]),  # typed in the document
    ("The fee is 4.50 EUR [Source 2].", [2]),  # supported by another chunk
    ("The fee is 4.50 EUR [Source 1][Source 3].", [3]),
    ("The fee is 4.50 EUR. [Source 1] Files over 5 GB are refused. [Source 1]", [1]),
    ("[Source 1] says that goods can be returned within 30 days, [Source 2] that it is 45 days.", [2]),
    (
        "- The fee is 4.50 EUR [Source 1]\n- The limit is 6 GB [Source 2]\n- It is Zurich [Source 0]",
        [2, None],
    ),
]

HONEST = [
    "Goods can be returned within 30 days [Source 1].",
    "You have thirty days to return goods [Source 1].",
    "The fee is €4.50, or 4,50 EUR in other spelling [Source 1].",
    "The document lists 1.000.000 items, or 1,000,000, or 1 million [Source 5].",
    "Refunds over 1250 EUR need approval [Source 1].",
    "Refunds over 1 250 EUR, that is EUR 1.250 or 1'250 euros, need approval [Source 1].",
    "Twelve percent of orders, 12 % or 12 per cent, come back. [Source 1]",
    "Maria López approves refunds in Madrid [Source 1].",
    "The uploader retries 3 times, 0.5 seconds apart [Source 2].",
    "1. Set `MAX_RETRIES`.\n2. Or use `--retry-limit` [Source 2].",
    "Files over 5,000 MB are refused [Source 2], see https://docs.example.com/upload/retries. [Source 2]",
    "It needs Python v3.12.4 on AWS [Source 2].",
    "Does it run on other hardware? No: it runs on AWS Lambda [Source 2].",
    "Acme was founded on March 14, 1998 [Source 3].",
    "It was founded on 1998-03-14 (14/03/1998, 14.3.1998) in Zürich [Source 3].",
    "It dates from March 1998, from 1998 to be short [Source 3].",
    "Acme lost −3,000,000 dollars in 2023 [Source 3].",
    "Support is open until 5 pm and opens at 9:30 am [Source 3].",
    "According to [Source 3], Acme is from Zurich, while [Source 1] mentions Madrid.",
    "Goods go back within 30 days [Source 1] and the uploader retries three times [Source 2].",
    "There are two ways to change the number: a setting and a flag [Source 2].",
    "There is one setting and four paragraphs about it in the documents [Source 2].",
    "Die Frist beträgt 14 Tage [Source 4]. Klara Neumann ist für den Vertrag zuständig [Source 4].",
    "Nach Ablauf der Frist kostet der Vertrag eine Gebühr, und die Kündigung kommt mit der Post [Source 4].",
    "Das kostet 1234,50 Euro, kündbar bis 31. Dezember 2025 [Source 4].",
    "期限为14天 [Source 4]。",
    "In short: returns are possible. [Source 1] Uploads are retried. [Source 2]",
    "**Return Goods**: 30 days [Source 1].",
    "Refunds need approval. [Source 1][Source 4]",
    "The fee is 4.50 EUR and Acme is from Zurich [Source 1, 3].",
]
