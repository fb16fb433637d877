"""Erasing with all traces: documents, profiles, collections, tenants; and the certificates that say so."""
