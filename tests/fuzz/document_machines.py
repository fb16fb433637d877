"""Two state machines (hypothesis) that compare the service with a dictionary.

``IngestionMachine`` adds, replaces and deletes documents, some of which cannot be read, and checks lists,
texts and lexical searches. ``FilterMachine`` stores hostile metadata and compares every filter with the
reference evaluator, in lists, searches and deletions. Both talk to a running server over HTTP.
"""

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import httpx2
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from tests.fuzz.api_server import ApiServer
from tests.fuzz.filter_reference import holds
from tests.support.rag.random_filters import RandomFilters, random_metadata

WORDS = ("apple", "river", "stone", "lamp", "cloud", "zebra")
"""Words with distinct stems."""
_JOB_TIMEOUT_S = 60


@dataclass
class Service:
    """A collection of a running server, and the number of operations on it."""

    client: httpx2.Client
    collection_id: str
    counts: "Counts"

    @property
    def documents(self) -> str:
        """Return the path of the collection's documents."""
        return f"/v1/collections/{self.collection_id}/documents"

    def send(self, method: str, path: str, *, expected: int = 200, **options: Any) -> Any:
        """Send a request and check its status; return the JSON of the response, if any."""
        response = self.client.request(method, path, **options)
        assert response.status_code == expected, f"{method} {path}: {response.status_code} {response.text}"
        self.counts.requests += 1
        return response.json() if response.content else None

    def add(self, documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Ingest documents; returns the status of each source."""
        job = self.send("POST", self.documents, expected=202, json={"documents": documents})
        end = time.monotonic() + _JOB_TIMEOUT_S
        while job["status"] in ("queued", "running"):
            assert time.monotonic() < end, f"The job is still {job['status']}."
            time.sleep(0.01)
            job = self.send("GET", f"/v1/jobs/{job['id']}")
        return {one["source"]: one["status"] for one in job["documents"]}

    def listed(self, **params: Any) -> dict[str, Any]:
        """Return the documents by source."""
        page = self.send("GET", self.documents, params={"limit": 200, **params})
        assert page["total"] == len(page["documents"])
        return {one["source"]: one for one in page["documents"]}

    def found(self, query: str, **more: Any) -> list[str]:
        """Return the sorted sources of a search's chunks."""
        body = {"query": query, "collection": self.collection_id, "top_k": 20, **more}
        return sorted(one["source"] for one in self.send("POST", "/v1/search", json=body)["results"])


@dataclass
class Counts:
    """Counts of a run."""

    runs: int = 0
    steps: int = 0
    requests: int = 0
    compared: int = 0
    """Results compared with the model's."""
    on_run: Callable[[int], None] = lambda _: None
    """Called with the number of runs at the start of each."""


class _Machine(RuleBasedStateMachine):
    server: ClassVar[ApiServer]
    counts: ClassVar[Counts]

    def __init__(self) -> None:
        super().__init__()
        client = httpx2.Client(base_url=self.server.url, headers=self.server.headers, timeout=60)
        made = client.post("/v1/collections", json={"name": f"machine-{uuid.uuid4().hex}"})
        self.service = Service(client, made.json()["id"], self.counts)
        self.counts.runs += 1
        self.counts.on_run(self.counts.runs)

    def teardown(self) -> None:
        self.service.client.delete(f"/v1/collections/{self.service.collection_id}")
        self.service.client.close()

    def compare(self, seen: object, expected: object) -> None:
        self.counts.compared += 1
        assert seen == expected


class IngestionMachine(_Machine):
    """Model of the documents: a dictionary from source to words."""

    SOURCES = ("a.md", "b/ä c.txt", "https://example.org/?q=1", "D.MD", "e")

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, str] = {}

    @rule(
        documents=st.dictionaries(
            st.sampled_from(SOURCES), st.lists(st.sampled_from(WORDS), max_size=4), min_size=1, max_size=3
        )
    )
    def add(self, documents: dict[str, list[str]]) -> None:
        """Add or replace some; those without words have no text, and change nothing."""
        self.counts.steps += 1
        texts = {source: " ".join(words) for source, words in documents.items()}
        sent = [{"source": source, "text": text} for source, text in texts.items()]
        statuses = self.service.add(sent)
        self.compare(
            {source: status == "failed" for source, status in statuses.items()},
            {source: not text for source, text in texts.items()},
        )
        self.model |= {source: text for source, text in texts.items() if text}

    @rule(source=st.sampled_from(SOURCES))
    def delete(self, source: str) -> None:
        """Delete one, existing or not."""
        self.counts.steps += 1
        stored = self.service.listed().get(source)
        self.compare(stored is not None, source in self.model)
        if stored is not None:
            self.service.send("DELETE", f"/v1/documents/{stored['id']}")
            self.service.send("GET", f"/v1/documents/{stored['id']}/text", expected=404)
        self.model.pop(source, None)

    @rule(word=st.sampled_from(WORDS), mode=st.sampled_from(("lexical", "dense")))
    def search(self, word: str, mode: str) -> None:
        """Search: lexical finds the documents with the word, dense finds all."""
        self.counts.steps += 1
        with_it = [source for source, text in self.model.items() if mode == "dense" or word in text.split()]
        self.compare(self.service.found(word, search_mode=mode), sorted(with_it))

    @invariant()
    def holds_what_was_sent(self) -> None:
        """Check for every source once, with the text of its last version."""
        listed = self.service.listed()
        self.compare(sorted(listed), sorted(self.model))
        for source, document in listed.items():
            text = self.service.send("GET", f"/v1/documents/{document['id']}/text")["text"]
            self.compare(text, self.model[source])


class FilterMachine(_Machine):
    """Model of the documents: a dictionary from source to metadata."""

    filters: Bundle[dict[str, Any]] = Bundle("filters")

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, Mapping[str, Any]] = {}

    @initialize(chance=st.randoms(use_true_random=False))
    def begin(self, chance: random.Random) -> None:
        """Store documents, so that filters match from the first step on."""
        self._store(["a", "b", "c"], chance)

    def _store(self, sources: Sequence[str], chance: random.Random) -> None:
        made = {source: random_metadata(chance) for source in sources}
        sent = [{"source": one, "text": f"About {one}.", "metadata": data} for one, data in made.items()]
        statuses = self.service.add(sent)
        assert "failed" not in statuses.values(), f"{statuses} {sent}"
        self.model |= made

    @rule(source=st.sampled_from("abcdefgh"), chance=st.randoms(use_true_random=False))
    def store(self, source: str, chance: random.Random) -> None:
        """Add a document, or replace its metadata."""
        self.counts.steps += 1
        self._store([source], chance)

    @rule(target=filters, chance=st.randoms(use_true_random=False))
    def make_filter(self, chance: random.Random) -> dict[str, Any]:
        """Make a filter for the current metadata, which is also used later."""
        return RandomFilters(chance, list(self.model.values())).make()

    @rule(condition=filters)
    def select(self, condition: dict[str, Any]) -> None:
        """Check that a list, a count and a search match the reference."""
        self.counts.steps += 1
        expected = self._chosen(condition)
        self.compare(sorted(self.service.listed(filters=json.dumps(condition))), expected)
        self.compare(self.service.found("about", filters=condition, search_mode="dense"), expected)
        if condition:
            preview = self._delete(condition, dry_run=True)
            self.compare((preview["matched"], preview["deleted"]), (len(expected), 0))

    @rule(condition=filters)
    def delete(self, condition: dict[str, Any]) -> None:
        """Check that a deletion removes the reference's matches only."""
        if not condition:
            return
        self.counts.steps += 1
        expected = self._chosen(condition)
        self.compare(self._delete(condition, dry_run=False)["deleted"], len(expected))
        self.model = {source: data for source, data in self.model.items() if source not in expected}
        self.compare(sorted(self.service.listed()), sorted(self.model))

    def _chosen(self, condition: Mapping[str, Any]) -> list[str]:
        return sorted(source for source, data in self.model.items() if holds(condition, data))

    def _delete(self, condition: dict[str, Any], *, dry_run: bool) -> Any:
        body = {"filters": condition, "dry_run": dry_run}
        return self.service.send("POST", f"{self.service.documents}/delete", json=body)


MACHINES: Mapping[str, type[_Machine]] = {"ingestion": IngestionMachine, "filters": FilterMachine}


def machine_for(
    name: str, server: ApiServer, *, on_run: Callable[[int], None] = lambda _: None
) -> tuple[type[_Machine], Counts]:
    """Return the machine for this server, and its counts."""
    counts = Counts(on_run=on_run)
    return type(name, (MACHINES[name],), {"server": server, "counts": counts}), counts
