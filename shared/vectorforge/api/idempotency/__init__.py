"""``Idempotency-Key``: a request that comes again gets the answer of the first one, and costs nothing more.

As draft-ietf-httpapi-idempotency-key-header describes it. Imported when the first request has the header.
"""
