"""Errors that VectorForge raises on purpose; their texts are ours and safe to show to a caller.

Import them from this package. The first line of a class's docstring is its default text.

    VectorForgeError
    ├── ConfigurationError              a setting is missing or contradicts another
    │   ├── NotConfiguredError          no embedding provider is configured
    │   └── UnknownModelError           the provider has no such model
    ├── SecretsUnavailableError         the secret store cannot be read now
    ├── InvalidInputError (ValueError)  a caller's value; names the field and the limit
    │   ├── FilterError                 the metadata filter is invalid
    │   └── IdempotencyKeyReusedError   another request used the same key
    ├── NotFoundError
    │   ├── AnsweringModelNotFoundError  a client of OpenAI's API named an unknown model
    │   ├── FeedbackTooEarlyError       a query has no record in the log yet
    │   └── OriginalNotKeptError        the file of a document is not stored
    ├── NotDeployedError                an optional part is not installed here
    ├── ConflictError                   the request contradicts what is stored
    │   ├── DimensionMismatchError
    │   ├── EmbeddingModelChangedError  the collection's model changed during the request
    │   ├── TenantBeingErasedError      no request is accepted until the erasure ends
    │   ├── IdempotentAnswerPendingError  the first request with the key is still running
    │   ├── IdempotentAnswerTooLongError  it cannot be replayed
    │   └── EmbeddingSwitchRefusedError  the new model finds too little of what the old one finds
    ├── AuthenticationError             no credential, or an invalid one
    ├── InsufficientScopeError          the credential may not do this
    ├── IdentityProviderUnavailableError  the keys that verify tokens cannot be fetched
    ├── GatewayKeysUnavailableError     the tenants of API Gateway's keys cannot be looked up now
    ├── LimitExceededError              the tenant's limit is reached for now
    ├── DeadlineExceededError           no time left for the next step
    ├── EmbeddingError                  text could not be turned into vectors
    │   ├── EmbeddingAuthenticationError
    │   ├── EmbeddingDimensionError     vectors of another length than configured
    │   ├── EmbeddingInputError         one text cannot be embedded: empty, too long, refused
    │   ├── EmbeddingRateLimitError
    │   └── EmbeddingTimeoutError
    ├── LLMError                        an answer could not be generated
    │   ├── LLMAuthenticationError
    │   ├── LLMRateLimitError
    │   ├── LLMTimeoutError
    │   ├── LLMRequestError             the vendor rejected the request
    │   │   └── LLMContextOverflowError  it exceeds the model's context
    │   ├── LLMStreamError              the stream broke after its first token
    │   └── LLMCircuitOpenError         repeated failures; calls are suspended
    ├── AnswerUnavailableError          no model and no fallback is available
    ├── AnswerStreamLostError           the process that generated it ended
    ├── AnswerStreamTooLongError        it is too long to be stored for resuming
    ├── ExtractionError                 a document could not be read
    ├── ObjectStoreError                an object of a bucket could not be read
    ├── QueueError                      a queue did not take a message
    ├── TraceExportError                a backend did not take the traces of queries
    ├── RetrievalError                  the search itself failed
    └── DatabaseError
        ├── DatabaseUnavailableError
        │   ├── DatabaseLoginError      it rejected the role or its credential
        │   └── UntrustedDatabaseError  its certificate cannot be verified
        ├── MigrationError
        ├── RefusedRowError             it rejects these values; another row may pass
        └── UnsafeRoleError             the database role would bypass row-level security

A vendor's or driver's own exception is always the ``__cause__``; its text is never copied into ours,
because it may hold keys, URLs or rows.
"""

# Every class; a test compares the catalog above with them.
from vectorforge.errors.base import *  # noqa: F403 - a list would repeat the catalog
from vectorforge.errors.services import *  # noqa: F403 - a list would repeat the catalog
