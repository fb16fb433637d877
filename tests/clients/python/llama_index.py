"""Conversations of LlamaIndex with servers, one a line of input; prints what it makes of each."""

import json
import sys
from typing import Any

from pydantic import BaseModel

sys.path.pop(0)  # this folder, in which this file has the package's name


class Rising(BaseModel):
    """Time and place of rising dough."""

    hours: int
    place: str


def clock(city: str) -> str:
    """Return the time in a city."""
    return f"noon in {city}"


def converse(asked: dict[str, Any]) -> Any:
    """Ask for an object over tools, or let the model call a tool."""
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    llm: Any = OpenAILike(
        model="vectorforge",
        api_base=f"{asked['url']}/v1",
        api_key=asked["key"],
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )
    if asked["mode"] == "object":
        return llm.as_structured_llm(Rising).complete(asked["text"]).raw.model_dump()
    tool = FunctionTool.from_defaults(clock)
    messages = [ChatMessage(role="user", content=asked["text"])]
    while True:
        answer = llm.chat_with_tools([tool], chat_history=messages)
        messages.append(answer.message)
        calls = llm.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
        if not calls:
            return {"text": answer.message.content}
        for call in calls:
            extra = {"tool_call_id": call.tool_id}
            messages.append(
                ChatMessage(role="tool", content=clock(**call.tool_kwargs), additional_kwargs=extra)
            )


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(converse(json.loads(line))) + "\n")
        sys.stdout.flush()
