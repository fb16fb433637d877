"""The services of tenants: an LRU cache."""

from pydantic import SecretStr

from vectorforge.bootstrap import Application
from vectorforge.config import DatabaseSettings, VectorForgeConfig

DATABASE = DatabaseSettings(database_url=SecretStr("postgresql://nobody@127.0.0.1:1/none"))


def test_tenant_services_are_cached_per_tenant() -> None:
    application = Application.build(VectorForgeConfig(database=DATABASE))
    cached = application.for_tenant("a")
    assert application.for_tenant("a") is cached
    assert [application.for_tenant(name).tenant_id for name in ("b", "a", "A")] == ["b", "a", "A"]
    assert application.for_tenant("b").query_service is not cached.query_service


def test_tenant_service_cache_is_bounded() -> None:  # callers' names must not make memory grow
    application = Application.build(VectorForgeConfig(database=DATABASE))
    cached = application.for_tenant("a")
    for number in range(300):
        application.for_tenant(f"other-{number}")
    assert application.for_tenant("a") is not cached
