"""Actions on the page that several of its test files take."""

from playwright.async_api import FilePayload


def file(name: str, text: str = "some text") -> FilePayload:
    return {"name": name, "mimeType": "text/markdown", "buffer": text.encode()}
