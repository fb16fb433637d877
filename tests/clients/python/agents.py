"""Conversations of Python clients with servers, one a line of input; prints what the client makes of each."""

import json
import sys
from typing import Any

from pydantic import BaseModel

MODEL = "vectorforge"
Asked = dict[str, Any]


class Rising(BaseModel):
    """Time and place of rising dough."""

    hours: int
    place: str


def clock(city: str) -> str:
    """Return the time in a city."""
    return f"noon in {city}"


def instructor(asked: Asked, url: str) -> Any:
    """Ask for an object over tools or JSON mode."""
    import instructor
    from openai import OpenAI

    mode = {"tools": instructor.Mode.TOOLS, "json": instructor.Mode.JSON}[asked["mode"]]
    client: Any = instructor.from_openai(OpenAI(base_url=url, api_key=asked["key"]), mode=mode)
    messages = [{"role": "user", "content": asked["text"]}]
    if asked["stream"]:
        parts = client.chat.completions.create_partial(model=MODEL, messages=messages, response_model=Rising)
        return list(parts)[-1].model_dump()
    return client.chat.completions.create(
        model=MODEL, messages=messages, response_model=Rising, max_retries=0
    ).model_dump()


def pydantic_ai(asked: Asked, url: str) -> Any:
    """Run an agent with a tool and an output type."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kinds: Any = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}
    model = kinds[asked["mode"]](MODEL, provider=OpenAIProvider(base_url=url, api_key=asked["key"]))
    agent: Any = Agent(model, output_type=Rising, tools=[clock])
    if not asked["stream"]:
        return agent.run_sync(asked["text"]).output.model_dump()
    return agent.run_stream_sync(asked["text"]).get_output().model_dump()


def langchain(asked: Asked, url: str) -> Any:
    """Ask for an object over both methods, or bind a tool and return its result."""
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    model: Any = ChatOpenAI(model=MODEL, base_url=url, api_key=asked["key"], max_retries=0)
    if asked["mode"] != "tools":
        return model.with_structured_output(Rising, method=asked["mode"]).invoke(asked["text"]).model_dump()
    bound = model.bind_tools([tool(clock)])
    messages: list[Any] = [HumanMessage(asked["text"])]
    while True:
        parts = list(bound.stream(messages)) if asked["stream"] else [bound.invoke(messages)]
        answer = parts[0]
        for part in parts[1:]:
            answer += part
        if not answer.tool_calls:
            return {"text": answer.content, "reason": answer.response_metadata["finish_reason"]}
        messages.append(answer)
        messages += [ToolMessage(clock(**c["args"]), tool_call_id=c["id"]) for c in answer.tool_calls]


CLIENTS = {"instructor": instructor, "pydantic_ai": pydantic_ai, "langchain": langchain}

if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        answer = CLIENTS[request["client"]](request, f"{request['url']}/v1")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
