"""Named overlays on the query configuration: fields, assignment and precedence."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.api.native.rag import CollectionQueryRequest, RAGQueryRequest
from vectorforge.config import QuerySettings, VectorForgeConfig
from vectorforge.errors import ConfigurationError, InvalidInputError
from vectorforge.pipeline.presets import RAG_QUERY, VECTORFORGE
from vectorforge.pipeline.types import QueryConfig
from vectorforge.pipeline.variants import BUILT_IN, Variant, VariantCatalogue, split

TOML = """
[terse]
max_tokens = 120
top_k = 3

[other-model]
llm_provider = "openai"
llm_model = "gpt-6-luna"
system_prompt = "Be short.\\n{context}"
"""


def catalogue(
    variants: dict[str, Any] | None = None, providers: tuple[str, ...] = (), **settings: Any
) -> VariantCatalogue:
    return VariantCatalogue(
        QuerySettings(variants=variants or {}, **settings),
        llm_providers=providers,
        embedding_providers=("hashing",),
    )


class TestSettings:
    @pytest.fixture(params=["json", "toml"])
    def written(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        if request.param == "json":
            terse = {"max_tokens": 120, "top_k": 3}
            other = {
                "llm_provider": "openai",
                "llm_model": "gpt-6-luna",
                "system_prompt": "Be short.\n{context}",
            }
            return json.dumps({"terse": terse, "other-model": other})
        (tmp_path / "variants.toml").write_text(TOML)
        return str(tmp_path / "variants.toml")

    def test_json_and_toml_file_are_equivalent(self, written: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VECTORFORGE_VARIANTS", written)
        monkeypatch.setenv("VECTORFORGE_VARIANT_SPLIT", '{"default": 3, "terse": 1}')
        variants = VariantCatalogue(VectorForgeConfig.from_environment().query, llm_providers=["openai"])
        assert variants.names == ("default", "precise", "comprehensive", "terse", "other-model")
        assert variants.find("terse").overlay == {"max_tokens": 120, "top_k": 3}
        assert variants.find("other-model").overlay["system_prompt"] == "Be short.\n{context}"

    @pytest.mark.parametrize(
        ("value", "place"),
        [
            ('{"a": {"top_k": 0}}', r"VECTORFORGE_VARIANTS\.a\.top_k: .*greater than or equal to 1"),
            (
                '{"a": {"temperature": 2.1}}',
                r"VECTORFORGE_VARIANTS\.a\.temperature: .*or equal to 2",
            ),
            ('{"a": {"top_p": -0.1}}', r"VECTORFORGE_VARIANTS\.a\.top_p: "),
            ('{"a": {"max_tokens": null}}', r"VECTORFORGE_VARIANTS\.a\.max_tokens: "),
            ('{"a": {"min_score": NaN}}', r"VECTORFORGE_VARIANTS\.a\.min_score: .*finite"),
            ('{"a": {"system_prompt": "canary"}}', r"VECTORFORGE_VARIANTS\.a\.system_prompt: .*\{context\}"),
            ('{"a": {"canary": 1}}', r"VECTORFORGE_VARIANTS\.a\.canary: Extra"),
            ('{"a": {"allow_ungrounded": true}}', r"VECTORFORGE_VARIANTS\.a\.allow_ungrounded: Extra"),
            ('{"A b": {}}', r"VECTORFORGE_VARIANTS\.A b"),
            ('{"a": 3}', r"VECTORFORGE_VARIANTS\.a: "),
            ('{"a"', "VECTORFORGE_VARIANTS: .*JSON"),
            ("/canary/variants.toml", "VECTORFORGE_VARIANTS: .*FileNotFoundError"),
            (json.dumps({f"v{n}": {} for n in range(51)}), "VECTORFORGE_VARIANTS: .*at most 50"),
        ],
    )
    def test_invalid_field_is_rejected_by_name(
        self, value: str, place: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VECTORFORGE_VARIANTS", value)
        with pytest.raises(ConfigurationError, match=place) as caught:
            VectorForgeConfig.from_environment()
        assert "canary" not in caught.value.message.replace("VECTORFORGE_VARIANTS.a.canary", "")

    def test_invalid_toml_file_is_rejected(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "v.toml").write_text("terse = {")
        monkeypatch.setenv("VECTORFORGE_VARIANTS", str(tmp_path / "v.toml"))
        with pytest.raises(ConfigurationError, match=r"VECTORFORGE_VARIANTS: .*not TOML"):
            VectorForgeConfig.from_environment()

    @pytest.mark.parametrize(
        ("variants", "settings", "why"),
        [
            ({"precise": {}}, {}, "VARIANTS.precise: is built in"),
            ({"a": {"top_k": 11}}, {"max_top_k": 10}, r"VARIANTS\.a\.top_k: must be at most 10"),
            ({"a": {"max_tokens": 9}}, {"max_answer_tokens": 8}, r"VARIANTS\.a\.max_tokens: .* 8"),
            ({"a": {"llm_provider": "x"}}, {}, r"a\.llm_provider: .*there are: openai, ollama"),
            ({"a": {"embedding_provider": "x"}}, {}, r"a\.embedding_provider: .*hashing"),
            ({}, {"variant_split": {"a": 1}}, "VARIANT_SPLIT: there is no variant a; there are: default"),
            ({}, {"variant_split": {"default": 0}}, "VARIANT_SPLIT: at least one weight"),
        ],
    )
    def test_inconsistent_settings_are_rejected_at_startup(
        self, variants: dict[str, Any], settings: dict[str, Any], why: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=why):
            catalogue(variants, ("openai", "ollama"), **settings)


def test_variant_catalog_always_contains_built_in_variants() -> None:  # D-040
    assert {name: dict(variant.overlay) for name, variant in BUILT_IN.items()} == {
        "default": {},
        "precise": {"temperature": 0.1, "max_tokens": 500},
        "comprehensive": {"temperature": 0.3, "max_tokens": 1000},
    }
    with pytest.raises(InvalidInputError, match="default, precise, comprehensive, mine") as caught:
        catalogue({"mine": {}}).find("yours")
    assert caught.value.field == "variant"


class TestPrecedence:
    TERSE = Variant("terse", {"top_k": 3, "temperature": 0.2, "max_tokens": 99, "llm_model": "small"})

    def test_variant_overrides_preset_defaults(self) -> None:  # C30
        for preset in (VECTORFORGE, RAG_QUERY):
            config = preset.config(self.TERSE)
            assert config == replace(
                preset.config(),
                variant="terse", top_k=3, temperature=0.2, max_tokens=99, llm_model="small",
            )  # fmt: skip

    def test_request_overrides_variant(self) -> None:
        rag = RAGQueryRequest(query="q", k=5, temperature=None, provider="ollama").config(self.TERSE)
        # 5 is also the default, but explicit; the model is another provider's
        assert (rag.top_k, rag.temperature, rag.max_tokens) == (5, None, 99)
        assert (rag.llm_provider, rag.llm_model) == ("ollama", None)
        body = CollectionQueryRequest(query="q", max_tokens=1024, llm_model="big")
        request_config = body.config(self.TERSE)
        assert (
            request_config.top_k,
            request_config.temperature,
            request_config.max_tokens,
            request_config.llm_model,
        ) == (3, 0.2, 1024, "big")

    def test_null_max_tokens_does_not_override_variant(self) -> None:
        assert RAGQueryRequest(query="q", max_tokens=None).config(self.TERSE).max_tokens == 99
        assert RAGQueryRequest(query="q", max_tokens=None).config().max_tokens == 2048

    @pytest.mark.parametrize(
        ("body", "preset"), [(RAGQueryRequest, RAG_QUERY), (CollectionQueryRequest, VECTORFORGE)]
    )
    def test_request_without_options_has_documented_defaults(
        self, body: type[RAGQueryRequest | CollectionQueryRequest], preset: Any
    ) -> None:
        """The schema shows defaults that only the preset applies: they must be the same."""
        config = body(query="q").config()
        assert config == preset.config()
        names = {"k": "top_k", "provider": "llm_provider", "model": "llm_model"}
        documented = {names.get(name, name): field.default for name, field in body.model_fields.items()}
        fields = QueryConfig.__dataclass_fields__.keys() & documented.keys()
        assert len(fields) >= 8
        assert {name: getattr(config, name) for name in fields} == {n: documented[n] for n in fields}


class TestSplit:
    def test_requested_variant_precedes_split_and_no_split_returns_none(self) -> None:
        assert catalogue().choose(None, tenant_id="t") is None
        halves = catalogue(variant_split={"precise": 1})
        assert halves.choose(None, tenant_id="t") == BUILT_IN["precise"]
        assert halves.choose("comprehensive", tenant_id="t") == BUILT_IN["comprehensive"]

    @given(key=st.text(), weights=st.dictionaries(st.text(), st.floats(0.001, 1e6), min_size=1))
    def test_equal_key_selects_same_variant(self, key: str, weights: dict[str, float]) -> None:
        assert split(key, weights) == split(key, dict(reversed(weights.items()))) in weights

    def test_selection_is_stable_across_processes_and_versions(self) -> None:
        """Fixed values: another hash would move tenants to other variants during an experiment."""
        chosen = {key: split(key, {"default": 1, "precise": 1}) for key in ("acme", "globex", "initech")}
        assert chosen == {"acme": "precise", "globex": "default", "initech": "precise"}

    def test_shares_match_weights(self) -> None:
        found = Counter(split(f"tenant-{n}", {"a": 70, "b": 20, "c": 10}) for n in range(10_000))
        assert found["a"] == pytest.approx(7000, abs=200)  # 4 standard deviations
        assert found["b"] == pytest.approx(2000, abs=160)

    def test_changed_weight_moves_keys_for_that_variant_only(self) -> None:
        keys = [f"tenant-{n}" for n in range(2_000)]
        before = {key: split(key, {"a": 2, "b": 2, "c": 1}) for key in keys}
        after = {key: split(key, {"a": 2, "b": 2, "c": 3}) for key in keys}
        moved = {(before[key], after[key]) for key in keys if before[key] != after[key]}
        assert moved == {("a", "c"), ("b", "c")}

    def test_zero_weight_variant_is_never_selected(self) -> None:
        zero = catalogue(variant_split={"default": 1, "precise": 0})
        assert all(zero.choose(None, tenant_id=f"t{n}") is BUILT_IN["default"] for n in range(50))

    def test_split_key_is_tenant_or_conversation(self) -> None:
        weights = {"default": 1, "precise": 1}
        by_tenant = catalogue(variant_split=weights)
        by_talk = catalogue(variant_split=weights, variant_split_by="conversation")
        conversations = [uuid4() for _ in range(64)]

        def chosen(of: VariantCatalogue) -> list[Any]:
            return [of.choose(None, tenant_id="t", conversation_id=c) for c in conversations]

        assert len(set(map(id, chosen(by_tenant)))) == 1
        assert chosen(by_talk) == chosen(by_talk)
        assert len(set(map(id, chosen(by_talk)))) == 2  # fails once in 2 ** 63 runs
        assert by_talk.choose(None, tenant_id="t") == by_tenant.choose(None, tenant_id="t")
