#!/usr/bin/env bash
# The doors of VectorForge with nothing but curl: ingest, search, ask, stream, an agent's tool call.
#
# Start the server with `uv run vectorforge up`, then run `examples/curl.sh`. VECTORFORGE_URL names another
# server, VECTORFORGE_API_KEY the key it wants.
set -euo pipefail

url=${VECTORFORGE_URL:-http://localhost:8000}
json=(-H 'content-type: application/json')
login=()
if [[ -n ${VECTORFORGE_API_KEY:-} ]]; then
  login=(-H "authorization: Bearer $VECTORFORGE_API_KEY")
fi

call() { # call PATH [curl's options ...]
  local path=$1
  shift
  # A status that is an error ends the script; the problem document still is shown.
  curl -sS --fail-with-body --max-time 120 "${login[@]}" "${json[@]}" "$url$path" "$@"
}

field() { # field NAME: the first text of this name in the JSON that is read
  sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -n 1
}

echo "== A collection of its own"
collection=$(call /v1/collections -d '{"name": "curl-example"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
clear_up() {
  echo "== Clear up: a certificate of what was erased"
  call "/v1/collections/$collection" -X DELETE
  echo
}
trap clear_up EXIT
echo "$collection"

echo "== Ingest a document, and wait for it"
job=$(call "/v1/collections/$collection/documents" -d '{"documents": [{
  "source": "refunds.md", "media_type": "text/markdown", "metadata": {"team": "finance"},
  "text": "# Refunds\n\nA refund takes five days. The finance team approves it."}]}' | field id)
until status=$(call "/v1/jobs/$job" | field status) && [[ $status != queued && $status != running ]]; do
  sleep 0.2
done
echo "$status"

echo "== Search: passages, best first"
call /v1/search -d '{"query": "How long does a refund take?", "collection": "curl-example", "top_k": 3,
  "filters": {"team": "finance"}}'

echo; echo "== Ask: a cited answer"
call /v1/rag/query -d '{"query": "How long does a refund take?", "collection": "curl-example"}'

echo; echo "== Stream: the same, as server-sent events"
call /v1/rag/query -N -d '{"query": "How long does a refund take?", "collection": "curl-example", "stream": true}'

echo "== As OpenAI's API has it"
call /v1/chat/completions -d '{"model": "vectorforge/curl-example",
  "messages": [{"role": "user", "content": "How long does a refund take?"}]}'

echo; echo "== A tool of the Model Context Protocol, without a session"
call /mcp -H 'accept: application/json, text/event-stream' -d '{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
  "params": {"name": "ask", "arguments": {"query": "How long does a refund take?", "collection": "curl-example"}}}'
echo
