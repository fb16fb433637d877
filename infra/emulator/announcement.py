"""Output of the commands that run VectorForge on this machine."""

import json
import sys
from collections.abc import Mapping

_BODY = json.dumps({"query": "How are tenants isolated?", "stream": True})


def announcement(
    title: str, rows: Mapping[str, str], *, url: str, uploads: str, login: str, curl: str = "curl -s"
) -> str:
    """Return the addresses of a running system, and commands to try it.

    Args:
        title: First line.
        rows: Addresses by name.
        url: Base URL of the API.
        uploads: URL of an upload, with COLLECTION/FILE at its end.
        login: Options of curl for the credential.
        curl: Command of the query.
    """
    upload = uploads.replace("COLLECTION/FILE", "default/README.md")
    lines = [
        f"{title}\n",
        *(f"  {name:<14}{value}\n" for name, value in rows.items()),
        "\nUpload, query, and read the log:\n",
        f"  curl -T README.md {upload}\n",
        f"  {curl} {url}/v1/rag/query {login}-H 'content-type: application/json' -d '{_BODY}'\n",
        f"  curl -s {login}'{url}/v1/queries?limit=1'\n\n",
    ]
    return "".join(lines)


def note(text: str) -> None:
    """Print a line to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
