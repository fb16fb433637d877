"""The composition root: the only package that decides which adapters are used.

``Application`` holds what a process shares; ``Application.for_tenant`` gives the services of one tenant.
Nothing connects before ``open()``, except to the store of providers' keys where the settings name one.
"""

from vectorforge.bootstrap.application import Application, credential_store
from vectorforge.bootstrap.tenant_services import TenantServices

__all__ = ["Application", "TenantServices", "credential_store"]
