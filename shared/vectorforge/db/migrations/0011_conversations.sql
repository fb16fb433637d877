-- Conversations that are kept, so that a client need not send what was said before.
SET LOCAL ROLE vectorforge_migrator;

CREATE TABLE vectorforge.conversations (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    title text NOT NULL DEFAULT '' CHECK (char_length(title) <= 200),
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
    -- of the query log: the question that the message asks or answers
    query_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, conversation_id, position),
    FOREIGN KEY (tenant_id, conversation_id) REFERENCES vectorforge.conversations (tenant_id, id) ON DELETE CASCADE
);

ALTER TABLE vectorforge.conversations ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.conversations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.conversations
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
ALTER TABLE vectorforge.conversation_messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.conversation_messages FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.conversation_messages
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.conversations, vectorforge.conversation_messages
    TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.conversations, vectorforge.conversation_messages TO vectorforge_eraser;
