"""One conversation of a Python client with the server; prints what the client makes of it."""

import json
import sys
from typing import Any

from pydantic import BaseModel

ASKED: Any = json.loads(sys.argv[1])
URL, KEY, QUESTION = f"{ASKED['url']}/v1", ASKED["key"], ASKED["text"]
MODEL = "vectorforge"


class Rising(BaseModel):
    """Time and place of rising dough."""

    hours: int
    place: str


def clock(city: str) -> str:
    """Return the time in a city."""
    return f"noon in {city}"


def instructor() -> Any:
    """Ask for an object over tools or JSON mode."""
    import instructor
    from openai import OpenAI

    mode = {"tools": instructor.Mode.TOOLS, "json": instructor.Mode.JSON}[ASKED["mode"]]
    client: Any = instructor.from_openai(OpenAI(base_url=URL, api_key=KEY), mode=mode)
    messages = [{"role": "user", "content": QUESTION}]
    if ASKED["stream"]:
        parts = client.chat.completions.create_partial(model=MODEL, messages=messages, response_model=Rising)
        return list(parts)[-1].model_dump()
    return client.chat.completions.create(
        model=MODEL, messages=messages, response_model=Rising, max_retries=0
    ).model_dump()


def pydantic_ai() -> Any:
    """Run an agent with a tool and an output type."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kinds: Any = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}
    model = kinds[ASKED["mode"]](MODEL, provider=OpenAIProvider(base_url=URL, api_key=KEY))
    agent: Any = Agent(model, output_type=Rising, tools=[clock])
    if not ASKED["stream"]:
        return agent.run_sync(QUESTION).output.model_dump()
    return agent.run_stream_sync(QUESTION).get_output().model_dump()


def langchain() -> Any:
    """Ask for an object over both methods, or bind a tool and return its result."""
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    model: Any = ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY, max_retries=0)
    if ASKED["mode"] != "tools":
        return model.with_structured_output(Rising, method=ASKED["mode"]).invoke(QUESTION).model_dump()
    bound = model.bind_tools([tool(clock)])
    messages: list[Any] = [HumanMessage(QUESTION)]
    while True:
        parts = list(bound.stream(messages)) if ASKED["stream"] else [bound.invoke(messages)]
        answer = parts[0]
        for part in parts[1:]:
            answer += part
        if not answer.tool_calls:
            return {"text": answer.content, "reason": answer.response_metadata["finish_reason"]}
        messages.append(answer)
        messages += [ToolMessage(clock(**c["args"]), tool_call_id=c["id"]) for c in answer.tool_calls]


CLIENTS = {"instructor": instructor, "pydantic_ai": pydantic_ai, "langchain": langchain}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(CLIENTS[ASKED["client"]]()))
