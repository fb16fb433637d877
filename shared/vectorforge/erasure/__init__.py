"""Complete erasure of documents, profiles, collections and tenants, with certificates."""
