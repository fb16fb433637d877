"""The composition root: the only package that decides which adapters are used.

``Application`` holds what a process shares; ``Application.for_tenant`` gives the services of one tenant.
Nothing connects before ``open()``, except to the store of providers' keys where the settings name one.
"""

from typing import TYPE_CHECKING

from vectorforge.bootstrap.application import Application
from vectorforge.bootstrap.model_registries import credential_store

if TYPE_CHECKING:
    from vectorforge.bootstrap.tenant_services import TenantServices

__all__ = ["Application", "TenantServices", "credential_store"]


def __getattr__(name: str) -> object:
    """``TenantServices`` leads to every pipeline, so it is imported when it is asked for (PEP 562)."""
    if name == "TenantServices":
        from vectorforge.bootstrap.tenant_services import TenantServices

        return TenantServices
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
