"""What a thousand questions cost, beside the idle stage."""

from infra.bill import ASSUMED, MEASURED, QUESTIONS, BillLine, gb, gigabytes, money, times
from infra.prices import EMBEDDING, PRICES, ModelPrice, Price, PriceError, model_price
from infra.settings import StageSettings


def question_bill(stage: StageSettings) -> list[BillLine]:
    """A thousand questions, streamed, without the model's tokens."""
    return [
        *_function_lines(stage),
        *_door_lines(stage),
        times("SQS", 2 + 2 * ASSUMED.writer_batches, PRICES.sqs_request),
        _log_line(stage),
        times("X-Ray", ASSUMED.traces, PRICES.trace),
        *_traffic_lines(stage),
    ]


def token_bill(model: ModelPrice) -> list[BillLine]:
    """The tokens of a thousand questions."""
    embedding = QUESTIONS * ASSUMED.question_tokens * EMBEDDING.tokens_in / 1e6
    tokens_in = QUESTIONS * MEASURED.prompt_tokens * model.tokens_in / 1e6
    tokens_out = QUESTIONS * ASSUMED.answer_tokens * model.tokens_out / 1e6
    return [
        BillLine(f"{EMBEDDING.model}, questions", f"{ASSUMED.question_tokens} tokens", embedding),
        BillLine(f"{model.model}, prompt", f"{MEASURED.prompt_tokens} tokens", tokens_in),
        BillLine(f"{model.model}, answer", f"{ASSUMED.answer_tokens} tokens", tokens_out),
    ]


def stage_models(stage: StageSettings) -> dict[str, ModelPrice]:
    """The model of each vendor unless a request names another; those without a price are left out."""
    chosen = {
        "openai": stage.environment.get("VECTORFORGE_DEFAULT_LLM_MODEL", "gpt-4o"),
        "anthropic": stage.environment.get("VECTORFORGE_ANTHROPIC_MODEL", "claude-sonnet-4-20250514"),
        "google": stage.environment.get("VECTORFORGE_GOOGLE_MODEL", "gemini-2.5-flash"),
    }
    found = {}
    for provider, model in chosen.items():
        try:
            found[provider] = model_price(model)
        except PriceError:
            continue
    return found


def _function_lines(stage: StageSettings) -> list[BillLine]:
    price = PRICES.lambda_gb_second(stage.code.architecture)
    seconds = ASSUMED.model_s + MEASURED.own_ms / 1000
    query = QUESTIONS * seconds * gb(stage.query) * price.each
    writing_s = ASSUMED.writer_batches * MEASURED.writer_ms / 1000
    writing = QUESTIONS * writing_s * gb(stage.log_writer) * price.each
    return [
        times("Lambda, requests", 1 + ASSUMED.writer_batches, PRICES.lambda_request),
        BillLine(
            "query function",
            f"{QUESTIONS:,} × {seconds:.2f} s × {gb(stage.query):.2f} GB × {money(price.dollars)}",
            query,
        ),
        BillLine(
            "log writer", f"{QUESTIONS:,} × {writing_s * 1000:g} ms × {gb(stage.log_writer):.2f} GB", writing
        ),
        *_cold_start_lines(stage, price),
    ]


def _cold_start_lines(stage: StageSettings, price: Price) -> list[BillLine]:
    starts = QUESTIONS * ASSUMED.cold_percent / 100
    size = gb(stage.query)
    match stage.start:
        case "snap_start":
            restored = PRICES.snapshot_restored
            arithmetic = f"{starts:g} × {size:.2f} GB × {money(restored.dollars)}"
            return [BillLine("restored snapshots", arithmetic, starts * size * restored.each)]
        case "on_demand":
            arithmetic = f"{starts:g} × {MEASURED.init_s:g} s × {size:.2f} GB × {money(price.dollars)}"
            return [BillLine("cold starts", arithmetic, starts * MEASURED.init_s * size * price.each)]
        case _:
            return []


def _door_lines(stage: StageSettings) -> list[BillLine]:
    if stage.front_door == "function_url":
        return [times("CloudFront", 1, PRICES.cloudfront_request)]
    lines = [times("API Gateway", 1, PRICES.api_request), *_authorizer_lines(stage)]
    if stage.web_acl:
        lines.append(times("WAF", 1, PRICES.web_acl_request))
    return lines


def _authorizer_lines(stage: StageSettings) -> list[BillLine]:
    if stage.authorizer is None:
        return []
    price, seconds = PRICES.lambda_gb_second(stage.code.architecture), ASSUMED.authorizer_ms / 1000
    each = PRICES.lambda_request.each + seconds * gb(stage.authorizer) * price.each
    arithmetic = f"{QUESTIONS:,} × (1 request + {ASSUMED.authorizer_ms:g} ms × {gb(stage.authorizer):.2f} GB)"
    return [BillLine("authorizer", arithmetic, QUESTIONS * each)]


def _log_line(stage: StageSettings) -> BillLine:
    invocations = 1 + ASSUMED.writer_batches
    size = MEASURED.log_bytes + ASSUMED.metric_log_bytes + ASSUMED.writer_batches * MEASURED.writer_log_bytes
    size += invocations * ASSUMED.platform_log_bytes
    if stage.front_door != "function_url":
        size += ASSUMED.access_log_bytes
    return gigabytes("CloudWatch Logs", size, PRICES.log_gb)


def _traffic_lines(stage: StageSettings) -> list[BillLine]:
    to_client = PRICES.cloudfront_gb if stage.front_door == "function_url" else PRICES.internet_gb
    answers = gigabytes("answers, out to clients", MEASURED.answer_bytes, to_client)
    prompts = gigabytes("prompts, out to the vendor", MEASURED.request_bytes, PRICES.internet_gb)
    # Without a way out no vendor is reached: the model is one of your own.
    out = [answers] if stage.network.egress == "none" else [answers, prompts]
    return [*out, *egress_traffic(stage)]


def egress_traffic(stage: StageSettings) -> list[BillLine]:
    """What the way out bills by size: the vendor's answers and the query log's messages."""
    match stage.network.egress:
        case "nat":
            size = MEASURED.request_bytes + MEASURED.reply_bytes + MEASURED.message_bytes
            return [gigabytes("NAT gateway", size, PRICES.nat_gb)]
        case "none":
            return [gigabytes("interface endpoint of SQS", MEASURED.message_bytes, PRICES.endpoint_gb)]
        case _:
            return []
