"""The composition root: the only package that chooses adapters.

``Application`` is a process; ``Application.for_tenant`` returns the services of one tenant. Nothing connects
before ``open()``, except to the store of providers' keys if the settings name one.
"""

from typing import TYPE_CHECKING

from vectorforge.bootstrap.application import Application
from vectorforge.bootstrap.shared import credential_store

if TYPE_CHECKING:
    from vectorforge.bootstrap.tenant import TenantServices

__all__ = ["Application", "TenantServices", "credential_store"]


def __getattr__(name: str) -> object:
    """Import ``TenantServices`` on first use (PEP 562), since it imports every pipeline."""
    if name == "TenantServices":
        from vectorforge.bootstrap.tenant import TenantServices

        return TenantServices
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
