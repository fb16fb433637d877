#!/usr/bin/env bash
# VectorForge's API surfaces with curl only: ingest, search, query, stream, an agent's tool call.
#
# Start the server with `uv run vectorforge up`, then run `examples/curl.sh`. VECTORFORGE_URL sets another
# server, VECTORFORGE_API_KEY its key.
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
  # An error status ends the script after printing the problem document.
  curl -sS --fail-with-body --max-time 120 "${login[@]}" "${json[@]}" "$url$path" "$@"
}

field() { # field NAME: the first string with this name in the JSON on stdin
  sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -n 1
}

echo "== Create a collection"
collection=$(call /v1/collections -d '{"name": "curl-example"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
clean_up() {
  echo "== Clean up: the certificate of the erasure"
  call "/v1/collections/$collection" -X DELETE
  echo
}
trap clean_up EXIT
echo "$collection"

echo "== Ingest a document and wait for the job"
job=$(call "/v1/collections/$collection/documents" -d '{"documents": [{
  "source": "refunds.md", "media_type": "text/markdown", "metadata": {"team": "finance"},
  "text": "# Refunds\n\nA refund takes five days. The finance team approves it."}]}' | field id)
until status=$(call "/v1/jobs/$job" | field status) && [[ $status != queued && $status != running ]]; do
  sleep 0.2
done
echo "$status"

echo "== Search: chunks, best first"
call /v1/search -d '{"query": "How long does a refund take?", "collection": "curl-example", "top_k": 3,
  "filters": {"team": "finance"}}'

echo; echo "== Query: a cited answer"
call /v1/rag/query -d '{"query": "How long does a refund take?", "collection": "curl-example"}'

echo; echo "== Stream: the same as server-sent events"
call /v1/rag/query -N -d '{"query": "How long does a refund take?", "collection": "curl-example", "stream": true}'

echo "== OpenAI's API"
call /v1/chat/completions -d '{"model": "vectorforge/curl-example",
  "messages": [{"role": "user", "content": "How long does a refund take?"}]}'

echo; echo "== A tool of the Model Context Protocol, without a session"
call /mcp -H 'accept: application/json, text/event-stream' -d '{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
  "params": {"name": "ask", "arguments": {"query": "How long does a refund take?", "collection": "curl-example"}}}'
echo
