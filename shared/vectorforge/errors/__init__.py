"""Every error VectorForge raises on purpose. Their texts are written by us and safe to show a caller.

The classes stand in this package's modules, by theme; everybody imports them from here.

    VectorForgeError
    ├── ConfigurationError              a setting is missing or contradicts another
    │   ├── NotConfiguredError          no embedding provider is configured
    │   └── UnknownModelError           the provider has no such model
    ├── SecretsUnavailableError         keys that are kept elsewhere cannot be read now
    ├── InvalidInputError (ValueError)  a caller's value; names the field and the limit
    │   ├── FilterError                 a metadata filter that cannot be understood
    │   └── IdempotencyKeyReusedError   another request came under the same key
    ├── NotFoundError
    │   └── AnsweringModelNotFoundError  a client of OpenAI's API named a model that is not there
    ├── ConflictError                   the request contradicts what is stored
    │   ├── DimensionMismatchError
    │   ├── EmbeddingModelChangedError  the collection's model is another by now
    │   ├── TenantBeingErasedError      nobody may enter it until that is done
    │   ├── IdempotentAnswerPendingError  the first request under the key has not ended yet
    │   ├── IdempotentAnswerTooLongError  so it cannot be given again
    │   └── EmbeddingSwitchRefusedError  the new model finds too little of what the old one finds
    ├── AuthenticationError             no credential, or not one of ours
    ├── InsufficientScopeError          the credential may not do this
    ├── IdentityProviderUnavailableError  the keys that tokens are checked with cannot be had
    ├── GatewayKeysUnavailableError     the tenants of API Gateway's keys cannot be looked up now
    ├── LimitExceededError              the tenant's limit is reached for now
    ├── DeadlineExceededError           no time left for the next step
    ├── EmbeddingError                  text could not be turned into vectors
    │   ├── EmbeddingAuthenticationError
    │   ├── EmbeddingInputError         one text cannot be embedded: empty, too long, refused
    │   ├── EmbeddingRateLimitError
    │   └── EmbeddingTimeoutError
    ├── LLMError                        an answer could not be generated
    │   ├── LLMAuthenticationError
    │   ├── LLMRateLimitError
    │   ├── LLMTimeoutError
    │   ├── LLMRequestError             the vendor refused the request itself
    │   │   └── LLMContextOverflowError  it is longer than the model's context
    │   ├── LLMStreamError              the stream broke after its first token
    │   └── LLMCircuitOpenError         it failed so often that it is not asked for a while
    ├── AnswerUnavailableError          nobody can answer now, and nothing takes an answer's place
    ├── AnswerStreamLostError           its writer is gone, and so is its end
    ├── AnswerStreamTooLongError        it was too long to be kept for those who read later
    ├── ExtractionError                 a document could not be read
    ├── ObjectStoreError                an object of a bucket could not be read
    ├── QueueError                      a queue did not take a message
    ├── RetrievalError                  the search itself failed
    └── DatabaseError
        ├── DatabaseUnavailableError
        │   ├── DatabaseLoginError      it refused the role, or what the role logged in with
        │   └── UntrustedDatabaseError  its certificate does not prove that it is the one that was meant
        ├── MigrationError
        ├── RefusedRowError         it does not take these values; another row may pass
        └── UnsafeRoleError             the database role would bypass row-level security

A vendor's or driver's own exception is always the ``__cause__``; its text is never copied into ours,
because it may hold keys, URLs or rows.
"""

from vectorforge.errors.base import (
    ConfigurationError,
    NotConfiguredError,
    SecretsUnavailableError,
    UnknownModelError,
    VectorForgeError,
)
from vectorforge.errors.requests import (
    AnsweringModelNotFoundError,
    AuthenticationError,
    ConflictError,
    DeadlineExceededError,
    DimensionMismatchError,
    EmbeddingModelChangedError,
    EmbeddingSwitchRefusedError,
    ExtractionError,
    FilterError,
    GatewayKeysUnavailableError,
    IdempotencyKeyReusedError,
    IdempotentAnswerPendingError,
    IdempotentAnswerTooLongError,
    IdentityProviderUnavailableError,
    InsufficientScopeError,
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    TenantBeingErasedError,
)
from vectorforge.errors.services import (
    AnswerStreamLostError,
    AnswerStreamTooLongError,
    AnswerUnavailableError,
    DatabaseError,
    DatabaseLoginError,
    DatabaseUnavailableError,
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
    LLMAuthenticationError,
    LLMCircuitOpenError,
    LLMContextOverflowError,
    LLMError,
    LLMRateLimitError,
    LLMRequestError,
    LLMStreamError,
    LLMTimeoutError,
    MigrationError,
    ObjectStoreError,
    QueueError,
    RefusedRowError,
    RetrievalError,
    UnsafeRoleError,
    UntrustedDatabaseError,
)

__all__ = [
    "AnswerStreamLostError",
    "AnswerStreamTooLongError",
    "AnswerUnavailableError",
    "AnsweringModelNotFoundError",
    "AuthenticationError",
    "ConfigurationError",
    "ConflictError",
    "DatabaseError",
    "DatabaseLoginError",
    "DatabaseUnavailableError",
    "DeadlineExceededError",
    "DimensionMismatchError",
    "EmbeddingAuthenticationError",
    "EmbeddingError",
    "EmbeddingInputError",
    "EmbeddingModelChangedError",
    "EmbeddingRateLimitError",
    "EmbeddingSwitchRefusedError",
    "EmbeddingTimeoutError",
    "ExtractionError",
    "FilterError",
    "GatewayKeysUnavailableError",
    "IdempotencyKeyReusedError",
    "IdempotentAnswerPendingError",
    "IdempotentAnswerTooLongError",
    "IdentityProviderUnavailableError",
    "InsufficientScopeError",
    "InvalidInputError",
    "LLMAuthenticationError",
    "LLMCircuitOpenError",
    "LLMContextOverflowError",
    "LLMError",
    "LLMRateLimitError",
    "LLMRequestError",
    "LLMStreamError",
    "LLMTimeoutError",
    "LimitExceededError",
    "MigrationError",
    "NotConfiguredError",
    "NotFoundError",
    "ObjectStoreError",
    "QueueError",
    "RefusedRowError",
    "RetrievalError",
    "SecretsUnavailableError",
    "TenantBeingErasedError",
    "UnknownModelError",
    "UnsafeRoleError",
    "UntrustedDatabaseError",
    "VectorForgeError",
]
