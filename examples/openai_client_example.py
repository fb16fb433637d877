"""The `openai` package against VectorForge: answers with citations, a stream, embeddings.

Start the server with `uv run vectorforge up`, then run
`uv run --with openai python examples/openai_client_example.py`.
``VECTORFORGE_URL`` names another server, ``VECTORFORGE_API_KEY`` the key it wants, ``VECTORFORGE_MODEL`` a
collection, as in `vectorforge/handbook`.
"""

import os

from openai import APIConnectionError, APIError, NotFoundError, OpenAI

MODEL = os.environ.get("VECTORFORGE_MODEL", "vectorforge")
QUESTION = "How are tenants kept apart?"


def show_models(client: OpenAI) -> None:
    """List the models: presets and collections."""
    print("models:", ", ".join(model.id for model in client.models.list()))


def ask(client: OpenAI) -> None:
    """A whole answer, and where its citations stand."""
    completion = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": QUESTION}], extra_body={"top_k": 5}
    )
    message = completion.choices[0].message
    content = message.content or ""
    print(f"\n== Whole\n{content}")
    for annotation in message.annotations or []:
        cited = annotation.url_citation
        print(f"  {content[cited.start_index : cited.end_index]} {cited.title}: {cited.url}")
    if completion.usage:
        print(f"usage: {completion.usage.total_tokens} tokens")


def ask_streaming(client: OpenAI) -> None:
    """The answer while it is written; the sources follow as text."""
    print("\n== Streamed")
    with client.chat.completions.stream(
        model=MODEL,
        messages=[{"role": "user", "content": QUESTION}],
        stream_options={"include_usage": True},
        extra_body={"append_sources": True},
    ) as stream:
        for event in stream:
            if event.type == "content.delta":
                print(event.delta, end="", flush=True)
        completion = stream.get_final_completion()
    print(f"\nfinish reason: {completion.choices[0].finish_reason}")


def embed(client: OpenAI) -> None:
    """Vectors by the provider that the collections use."""
    provider = os.environ.get("VECTORFORGE_EMBEDDINGS", "local")
    response = client.embeddings.create(model=provider, input=[QUESTION, "Who is walled in?"])
    print(f"\n== Embeddings\n{len(response.data)} of {len(response.data[0].embedding)} dimensions")


def show_refusal(client: OpenAI) -> None:
    """Errors are the package's own classes, before and inside a stream."""
    try:
        client.chat.completions.create(
            model="vectorforge/nowhere", messages=[{"role": "user", "content": QUESTION}]
        )
    except NotFoundError as error:
        print(f"\n== Refusal\n{error.code}, {error.param}: {error.status_code}")


def main() -> None:
    """Show it all."""
    with OpenAI(
        base_url=os.environ.get("VECTORFORGE_URL", "http://localhost:8000") + "/v1",
        api_key=os.environ.get("VECTORFORGE_API_KEY", "none"),
    ) as client:
        try:
            show_models(client)
            ask(client)
            ask_streaming(client)
            embed(client)
            show_refusal(client)
        except APIConnectionError:
            raise SystemExit(f"No server at {client.base_url}. Start it: uv run vectorforge up") from None
        except APIError as error:
            raise SystemExit(f"The server refused: {error.message}") from None


if __name__ == "__main__":
    main()
