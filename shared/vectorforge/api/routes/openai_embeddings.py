"""``/v1/embeddings``: the vectors of texts, by the same providers that collections use."""

import asyncio

from fastapi import APIRouter, Request

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.disconnect import cancelled_on_disconnect
from vectorforge.api.openai.embeddings import as_base64, check_size, count_tokens, embed, find_embedder
from vectorforge.api.openai.error_responses import openai_problems
from vectorforge.api.querying import deadline_of
from vectorforge.api.schemas.openai_embeddings import (
    EmbeddingBody,
    EmbeddingList,
    EmbeddingsRequest,
    EmbeddingUsage,
)
from vectorforge.limits.types import Claim

router = APIRouter(prefix="/v1", tags=["openai"])


@router.post("/embeddings", responses=openai_problems(404, 413, 415, 429, 502, 504))
async def create_embeddings(
    request: Request, body: EmbeddingsRequest, application: ApplicationDep, tenant: Tenant
) -> EmbeddingList:
    """Embed texts as passages are: no prefix of a collection is put before them."""
    check_size(body)
    provider, model = find_embedder(tenant.embeddings, body.model)
    async with cancelled_on_disconnect(request.receive):
        tokens = await asyncio.to_thread(count_tokens, body.input, model)
        await tenant.limits.admit(Claim(tokens=tokens, field="input"))
        await tenant.confirm_credential()
        vectors = await embed(provider, model, body, deadline_of(request, application))
        tenant.limits.note_used(tokens)
    is_base64 = body.encoding_format == "base64"
    return EmbeddingList(
        data=[
            EmbeddingBody(index=index, embedding=as_base64(vector) if is_base64 else vector)
            for index, vector in enumerate(vectors)
        ],
        model=f"{provider.provider_name()}/{model}",
        usage=EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens),
    )
