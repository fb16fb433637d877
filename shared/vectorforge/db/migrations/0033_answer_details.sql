-- What a stored answer has besides its text: docs/use/conversations.md.
SET LOCAL ROLE vectorforge_migrator;

-- of an answer: verdicts, scores, times, calls of tools and its finish reason; NULL: erased, or of an earlier version
ALTER TABLE vectorforge.conversation_messages ADD COLUMN details jsonb CHECK (jsonb_typeof(details) = 'object');

-- Calls and search texts quote documents as the text does. By name after refuse_erased, which may erase a new message.
CREATE FUNCTION vectorforge.strip_details() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.details := NULL;
    RETURN NEW;
END
$$;
CREATE TRIGGER strip_details BEFORE INSERT OR UPDATE ON vectorforge.conversation_messages
    FOR EACH ROW WHEN (NEW.content = '[erased]') EXECUTE FUNCTION vectorforge.strip_details();
