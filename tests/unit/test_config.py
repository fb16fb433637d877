"""Settings come from VECTORFORGE_* and do not reveal their secrets."""

import re
import traceback
from pathlib import Path

import pytest

from vectorforge.config import VectorForgeConfig, known_variables
from vectorforge.errors import ConfigurationError

ROOT = Path(__file__).parents[2]


def test_config_without_environment_has_defaults() -> None:
    config = VectorForgeConfig.from_environment()
    assert config.llm.default_model == "gpt-4o"
    assert config.llm.anthropic_model == "claude-sonnet-4-20250514"
    assert config.query.max_query_length == 10_000
    assert config.server.auth == "api_key"


def test_config_has_documented_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VECTORFORGE_OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("VECTORFORGE_OPENAI_BASE_URL", "http://localhost:1/v1")
    monkeypatch.setenv("VECTORFORGE_OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("VECTORFORGE_DEFAULT_LLM_MODEL", "gpt-next")
    monkeypatch.setenv("VECTORFORGE_DEFAULT_LLM_PROVIDER", "anthropic")
    monkeypatch.setenv("VECTORFORGE_ANTHROPIC_API_KEY", "sk-ant")
    llm = VectorForgeConfig.from_environment().llm
    assert llm.openai_api_key is not None
    assert llm.openai_api_key.get_secret_value() == "sk-test"
    assert (llm.openai_base_url, llm.openai_org_id) == ("http://localhost:1/v1", "org-1")
    assert (llm.default_model, llm.default_provider) == ("gpt-next", "anthropic")


def test_config_repr_hides_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTORFORGE_OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("VECTORFORGE_DATABASE_URL", "postgresql://u:canary@h/db")
    assert "canary" not in repr(VectorForgeConfig.from_environment())


def test_invalid_value_error_names_setting_and_hides_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTORFORGE_CHUNK_SIZE_CHARS", "canary")
    with pytest.raises(ConfigurationError, match=r"(?i)chunk_size_chars") as caught:
        VectorForgeConfig.from_environment()
    assert "canary" not in caught.value.message


@pytest.mark.parametrize("name", ["VECTORFORGE_ALLOWED_HOSTS", "VECTORFORGE_API_KEYS"])
@pytest.mark.parametrize("value", ["canary.example", '{"canary"', '"canary"'])
def test_invalid_json_error_names_variable_and_hides_value(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name) as caught:
        VectorForgeConfig.from_environment()
    assert "canary" not in caught.value.message
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("vendor", ["OPENAI", "ANTHROPIC", "OLLAMA", "EMBEDDING", "VERTEX"])
def test_address_without_scheme_is_rejected(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"VECTORFORGE_{vendor}_BASE_URL", "localhost:11434")
    with pytest.raises(ConfigurationError, match=f"{vendor}_BASE_URL.*must begin with http"):
        VectorForgeConfig.from_environment()


@pytest.mark.parametrize("value", ["inf", "nan"])
@pytest.mark.parametrize("name", ["VECTORFORGE_EXTRACTION_TIMEOUT_S", "VECTORFORGE_LLM_TIMEOUT_S"])
def test_number_that_is_not_finite_is_rejected(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name):
        VectorForgeConfig.from_environment()


@pytest.mark.parametrize("name", ["VECTORFORGE_DEFAULT_COLLECTION", "VECTORFORGE_PROFILE_COLLECTION"])
@pytest.mark.parametrize("value", [" ", "x" * 201])
def test_collection_name_is_validated_as_by_the_api(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name):
        VectorForgeConfig.from_environment()
    monkeypatch.setenv(name, " my papers ")
    assert "my papers" in VectorForgeConfig.from_environment().query.model_dump().values()


def test_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "CHUNK_SIZE_CHARS", "API_KEYS", "OPENAI_API_KEY", "DATA_DIR", "AUTH"):
        monkeypatch.setenv(f"VECTORFORGE_{name}", "")
    assert VectorForgeConfig.from_environment() == VectorForgeConfig()
    assert VectorForgeConfig().database.database_url is None


def test_overlap_above_half_chunk_size_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTORFORGE_CHUNK_SIZE_CHARS", "150")
    both = r"settings: VECTORFORGE_CHUNK_OVERLAP_CHARS.*VECTORFORGE_CHUNK_SIZE_CHARS"
    with pytest.raises(ConfigurationError, match=both):
        VectorForgeConfig.from_environment()
    monkeypatch.setenv("VECTORFORGE_CHUNK_OVERLAP_CHARS", "76")
    with pytest.raises(ConfigurationError, match=f"{both}, 75"):
        VectorForgeConfig.from_environment()
    monkeypatch.setenv("VECTORFORGE_CHUNK_OVERLAP_CHARS", "75")
    assert VectorForgeConfig.from_environment().ingestion.chunk_overlap_chars == 75


def test_settings_are_documented() -> None:
    text = (ROOT / "docs" / "operate" / "configuration.md").read_text()
    documented = set(re.findall(r"`(VECTORFORGE_[A-Z_]+)`", text))
    assert documented == known_variables()
