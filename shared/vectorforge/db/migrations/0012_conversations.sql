-- Stored conversations, so that a client need not send the earlier messages.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.conversations (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    title text NOT NULL DEFAULT '' CHECK (char_length(title) <= 200),
    -- the credential that started it, as logs name it, since each has a share of the tenant's conversations; NULL: none
    credential text CHECK (char_length(credential) <= 512),
    message_count int NOT NULL DEFAULT 0 CHECK (message_count >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX conversations_by_time ON vectorforge.conversations (tenant_id, updated_at, id);

CREATE TABLE vectorforge.conversation_messages (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    conversation_id uuid NOT NULL,
    position int NOT NULL CHECK (position >= 0),
    role text NOT NULL CHECK (role IN ('user', 'assistant')),
    content text NOT NULL,
    -- id in the query log of the query that the message contains or answers
    query_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, conversation_id, position),
    FOREIGN KEY (tenant_id, conversation_id) REFERENCES vectorforge.conversations (tenant_id, id) ON DELETE CASCADE
);

SELECT vectorforge.enable_tenant_isolation('conversations'),
    vectorforge.enable_tenant_isolation('conversation_messages');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.conversations, vectorforge.conversation_messages
    TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.conversations, vectorforge.conversation_messages TO vectorforge_eraser;
