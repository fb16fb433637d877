"""VectorForge as a LangChain retriever, in a chain that answers from its results.

Start the server with `uv run vectorforge up`, then
`OPENAI_API_KEY=... uv run --with langchain-core --with openai python examples/langchain_retriever.py`, with
an optional query. ``OPENAI_BASE_URL`` sets another model server, ``AGENT_MODEL`` another model,
``VECTORFORGE_URL`` another VectorForge, ``VECTORFORGE_API_KEY`` its key.
"""

import os
import sys
from typing import Any

import httpx2
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnableParallel, RunnablePassthrough
from pydantic import SecretStr

TIMEOUT_S = 120


class VectorForgeRetriever(BaseRetriever):
    """Retrieve chunks by ``POST /v1/search``, best first, with source, heading, score and ids as metadata."""

    url: str = "http://localhost:8000"
    api_key: SecretStr | None = None
    collection: str | None = None
    """Name or id; None for the server's default collection."""
    top_k: int = 5
    filters: dict[str, Any] | None = None
    """Conditions on the documents' metadata, e.g. ``{"year": {"$gte": 2024}}``."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        headers = {"Authorization": f"Bearer {self.api_key.get_secret_value()}"} if self.api_key else {}
        body = {"query": query, "collection": self.collection, "top_k": self.top_k, "filters": self.filters}
        response = httpx2.post(f"{self.url}/v1/search", json=body, headers=headers, timeout=TIMEOUT_S)
        if not response.is_success:
            raise ValueError(f"{response.status_code}: {response.text}")
        return [
            Document(
                id=chunk["chunk_id"],
                page_content=chunk["text"],
                metadata={
                    **chunk["metadata"],
                    **{key: chunk[key] for key in ("source", "heading", "score", "document_id")},
                },
            )
            for chunk in response.json()["results"]
        ]


def labeled(documents: list[Document]) -> str:
    """Join the chunks into one text, each with its label for citations."""
    parts = [f"[{n}] {d.metadata['source']}\n{d.page_content}" for n, d in enumerate(documents, start=1)]
    return "\n\n".join(parts)


def ask_model(prompt: PromptValue) -> str:
    """Call OpenAI's model through its SDK; ``langchain-openai`` has a class for the same."""
    from openai import OpenAI

    roles = {"human": "user", "system": "system"}
    messages: list[Any] = [{"role": roles[m.type], "content": m.text} for m in prompt.to_messages()]
    with OpenAI() as client:
        model = os.environ.get("AGENT_MODEL", "gpt-6-luna")
        completion = client.chat.completions.create(model=model, messages=messages)
    return completion.choices[0].message.content or ""


def make_chain(retriever: BaseRetriever) -> Runnable[str, str]:
    """Build the chain from query to answer."""
    instructions = "Answer from these passages only, and cite them as [1]:\n\n{context}"
    prompt = ChatPromptTemplate([("system", instructions), ("human", "{question}")])
    given = RunnableParallel(context=retriever | labeled, question=RunnablePassthrough())
    return given | prompt | RunnableLambda(ask_model) | StrOutputParser()


def main(question: str) -> None:
    """Print the retrieved chunks, and the chain's answer if a model is configured."""
    key = os.environ.get("VECTORFORGE_API_KEY")
    found = VectorForgeRetriever(
        url=os.environ.get("VECTORFORGE_URL", "http://localhost:8000"),
        api_key=SecretStr(key) if key else None,
        top_k=3,
    )
    for document in found.invoke(question):
        print(f"{document.metadata['score']:.2f} {document.metadata['source']}")
    if "OPENAI_API_KEY" in os.environ:
        print(make_chain(found).invoke(question))
    else:
        print("Set OPENAI_API_KEY to answer from these chunks.")


if __name__ == "__main__":
    try:
        main(" ".join(sys.argv[1:]) or "How are tenants isolated?")
    except httpx2.ConnectError as error:
        raise SystemExit(f"No server at VECTORFORGE_URL ({error}). Start it: uv run vectorforge up") from None
    except Exception as error:  # noqa: BLE001 - a refusal of the server or of the model's vendor
        raise SystemExit(f"Failed: {error}") from None
