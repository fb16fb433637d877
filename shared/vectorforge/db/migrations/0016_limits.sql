-- Usage of tenants against their limits: counted exactly, for any number of concurrent processes.
SET LOCAL ROLE vectorforge_migrator;

-- Usage of finished requests, one row for each tenant. A reservation locks the row until it commits.
CREATE TABLE vectorforge.limit_counters (
    tenant_id text PRIMARY KEY CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    -- requests in each of the 61 seconds up to last_second (of the Unix epoch): they contain any 60 seconds
    second_counts int[] NOT NULL CHECK (cardinality(second_counts) = 61),
    last_second bigint NOT NULL,
    -- of this day and this month, in UTC
    day date NOT NULL,
    day_tokens bigint NOT NULL CHECK (day_tokens >= 0),
    month date NOT NULL,
    month_cost_usd numeric NOT NULL CHECK (month_cost_usd >= 0)
) WITH (fillfactor = 50);

-- Requests that are running, or are finished and not yet added to the counters.
CREATE TABLE vectorforge.limit_reservations (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    -- for requests whose process was killed
    expires_at timestamptz NOT NULL,
    is_stream boolean NOT NULL,
    -- the most that it may use; once settled, what it has used. One that reserves nothing is settled from the
    -- beginning.
    tokens bigint NOT NULL CHECK (tokens >= 0),
    cost_usd numeric NOT NULL CHECK (cost_usd >= 0),
    settled boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, id)
) WITH (fillfactor = 70);

SELECT vectorforge.enable_tenant_isolation('limit_counters'),
    vectorforge.enable_tenant_isolation('limit_reservations');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.limit_counters, vectorforge.limit_reservations TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.limit_counters, vectorforge.limit_reservations TO vectorforge_eraser;

CREATE TYPE vectorforge.limit_state AS (
    -- the limit that rejects the request; NULL: it is admitted
    refused_by text,
    -- until it would be admitted, as far as that is known; NULL: never, or it is admitted
    retry_after_s float8,
    -- the limits in force; NULL: none
    requests_per_minute int, tokens_per_day bigint, cost_per_month_usd numeric, concurrent_streams int,
    -- what remains of each after this request
    requests_left int, tokens_left bigint, cost_left_usd numeric, streams_left int,
    -- until the next request leaves the last minute, and until the next day in UTC
    minute_reset_s float8, day_reset_s float8
);

-- Admit a request, or return the limit that rejects it. A second call with the same id changes nothing. The clock is
-- read under the lock, so that a request admitted after another is never counted before it.
CREATE FUNCTION vectorforge.reserve(
    tenant text, reservation uuid, new_requests int, is_stream boolean, new_tokens bigint, new_cost_usd numeric,
    hold interval, default_requests int, default_tokens bigint, default_cost_usd numeric, default_streams int
) RETURNS vectorforge.limit_state
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    state vectorforge.limit_state;
    counters vectorforge.limit_counters;
    ended record;
    held record;
    is_known boolean;
    moment timestamptz;
    this_second bigint;
    today date;
    this_month date;
    in_a_minute int;
    to_leave int;
BEGIN
    SELECT coalesce(t.requests_per_minute, default_requests), coalesce(t.tokens_per_day, default_tokens),
        coalesce(t.cost_per_month_usd, default_cost_usd), coalesce(t.concurrent_streams, default_streams)
    INTO state.requests_per_minute, state.tokens_per_day, state.cost_per_month_usd, state.concurrent_streams
    FROM (SELECT tenant AS id) AS wanted LEFT JOIN vectorforge.tenants AS t ON t.tenant_id = wanted.id;
    IF num_nonnulls(state.requests_per_minute, state.tokens_per_day, state.cost_per_month_usd,
                    state.concurrent_streams) = 0 THEN
        RETURN state;
    END IF;

    -- A crash of the server may lose the last writes, which admits a few requests too many. In exchange the tenant's
    -- other requests do not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO vectorforge.limit_counters
    VALUES (tenant, array_fill(0, ARRAY[61]), 0, '-infinity', 0, '-infinity', 0) ON CONFLICT DO NOTHING;
    SELECT * INTO counters FROM vectorforge.limit_counters AS c WHERE c.tenant_id = tenant FOR UPDATE;
    moment := clock_timestamp();
    today := (moment AT TIME ZONE 'UTC')::date;
    this_month := date_trunc('month', moment AT TIME ZONE 'UTC')::date;

    -- Start new periods.
    this_second := greatest(floor(extract(epoch FROM moment))::bigint, counters.last_second);
    counters.second_counts := CASE WHEN this_second - counters.last_second >= 61 THEN array_fill(0, ARRAY[61])
        ELSE counters.second_counts[(1 + this_second - counters.last_second)::int:]
            || array_fill(0, ARRAY[(this_second - counters.last_second)::int]) END;
    counters.last_second := this_second;
    counters.day_tokens := CASE WHEN counters.day = today THEN counters.day_tokens ELSE 0 END;
    counters.month_cost_usd := CASE WHEN counters.month = this_month THEN counters.month_cost_usd ELSE 0 END;
    counters.day := today;
    counters.month := this_month;

    is_known := EXISTS (
        SELECT FROM vectorforge.limit_reservations AS r WHERE r.tenant_id = tenant AND r.id = reservation
    );
    WITH gone AS (
        DELETE FROM vectorforge.limit_reservations AS r
        WHERE r.tenant_id = tenant AND r.id <> reservation AND (r.settled OR r.expires_at <= moment)
        RETURNING r.settled, r.tokens, r.cost_usd, (r.created_at AT TIME ZONE 'UTC')::date AS day
    )
    SELECT count(*) AS number,
        coalesce(sum(tokens) FILTER (WHERE settled AND day = today), 0) AS tokens,
        coalesce(sum(cost_usd) FILTER (WHERE settled AND day >= this_month), 0) AS cost_usd
    INTO ended FROM gone;
    counters.day_tokens := counters.day_tokens + ended.tokens;
    counters.month_cost_usd := counters.month_cost_usd + ended.cost_usd;
    SELECT coalesce(sum(r.tokens) FILTER (WHERE (r.created_at AT TIME ZONE 'UTC')::date = today), 0) AS tokens,
        coalesce(sum(r.cost_usd) FILTER (WHERE (r.created_at AT TIME ZONE 'UTC')::date >= this_month), 0) AS cost_usd,
        count(*) FILTER (WHERE r.is_stream AND NOT r.settled) AS streams
    INTO held FROM vectorforge.limit_reservations AS r WHERE r.tenant_id = tenant;
    SELECT sum(n) INTO in_a_minute FROM unnest(counters.second_counts) AS n;
    state.day_reset_s := extract(epoch FROM (today + 1)::timestamp - (moment AT TIME ZONE 'UTC'));

    IF NOT is_known THEN
        IF is_stream AND held.streams >= state.concurrent_streams THEN
            state.refused_by := 'concurrent_streams';
            state.retry_after_s := 1;
        ELSIF new_requests > 0 AND in_a_minute + new_requests > state.requests_per_minute THEN
            state.refused_by := 'requests_per_minute';
        ELSIF new_tokens > 0 AND counters.day_tokens + held.tokens + new_tokens > state.tokens_per_day THEN
            state.refused_by := 'tokens_per_day';
            state.retry_after_s := CASE WHEN new_tokens > state.tokens_per_day THEN NULL
                WHEN counters.day_tokens + new_tokens <= state.tokens_per_day THEN 1  -- others may use less
                ELSE state.day_reset_s END;
        ELSIF new_cost_usd > 0
            AND counters.month_cost_usd + held.cost_usd + new_cost_usd > state.cost_per_month_usd THEN
            state.refused_by := 'cost_per_month_usd';
            state.retry_after_s := CASE WHEN new_cost_usd > state.cost_per_month_usd THEN NULL
                WHEN counters.month_cost_usd + new_cost_usd <= state.cost_per_month_usd THEN 1
                ELSE extract(epoch FROM this_month + interval '1 month' - (moment AT TIME ZONE 'UTC')) END;
        ELSE
            counters.second_counts[61] := counters.second_counts[61] + new_requests;
            in_a_minute := in_a_minute + new_requests;
            INSERT INTO vectorforge.limit_reservations
            VALUES (tenant, reservation, moment, moment + hold, is_stream, new_tokens, new_cost_usd,
                    NOT is_stream AND new_tokens = 0 AND new_cost_usd = 0);
            held.tokens := held.tokens + new_tokens;
            held.cost_usd := held.cost_usd + new_cost_usd;
            held.streams := held.streams + is_stream::int;
        END IF;
    END IF;
    IF state.refused_by IS NULL OR ended.number > 0 THEN
        UPDATE vectorforge.limit_counters AS c
        SET (second_counts, last_second, day, day_tokens, month, month_cost_usd) = (
            counters.second_counts, counters.last_second, counters.day, counters.day_tokens, counters.month,
            counters.month_cost_usd
        )
        WHERE c.tenant_id = tenant;
    END IF;

    -- When enough of the oldest requests have left the minute for the next one to fit.
    to_leave := CASE WHEN state.refused_by = 'requests_per_minute'
        THEN in_a_minute + new_requests - state.requests_per_minute ELSE 1 END;
    SELECT min(s.place) + counters.last_second - extract(epoch FROM moment) INTO state.minute_reset_s
    FROM (SELECT place, sum(n) OVER (ORDER BY place) AS gone
          FROM unnest(counters.second_counts) WITH ORDINALITY AS u(n, place)) AS s
    WHERE s.gone >= to_leave;
    IF state.refused_by = 'requests_per_minute' THEN
        state.retry_after_s := state.minute_reset_s;
    END IF;
    state.requests_left := greatest(state.requests_per_minute - in_a_minute, 0);
    state.tokens_left := greatest(state.tokens_per_day - counters.day_tokens - held.tokens, 0);
    state.cost_left_usd := greatest(state.cost_per_month_usd - counters.month_cost_usd - held.cost_usd, 0);
    state.streams_left := greatest(state.concurrent_streams - held.streams, 0);
    RETURN state;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.reserve(
    text, uuid, int, boolean, bigint, numeric, interval, int, bigint, numeric, int
) TO vectorforge_app;

-- Replace what a request reserved by what it has used. A second call changes nothing.
CREATE FUNCTION vectorforge.settle(tenant text, reservation uuid, used_tokens bigint, used_cost_usd numeric)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE vectorforge.limit_reservations AS r
    SET settled = true, tokens = used_tokens, cost_usd = used_cost_usd
    WHERE r.tenant_id = tenant AND r.id = reservation AND NOT r.settled
    RETURNING true
$$;
GRANT EXECUTE ON FUNCTION vectorforge.settle(text, uuid, bigint, numeric) TO vectorforge_app;
