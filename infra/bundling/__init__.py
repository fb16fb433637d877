"""Deployment bundles of the Lambda functions, made without Docker.

    python -m infra.bundling query --output build/query
    python -m infra.bundling ingest --output build/ingest --platform x86_64-manylinux_2_34

``bundle`` fills the folder: packages of uv.lock for Lambda's platform, code, bytecode
(``interpreters``), root certificates (``database_certificates``) and token tables (``token_tables``).
"""
