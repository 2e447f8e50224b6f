#!/bin/sh
# An agent that needs nothing but curl, and python3 to take JSON apart.
#
#   sh examples/curl_agent.sh "What is 17.5 + 24.5, and what time is it in Tokyo?"
#
# The model is one of OpenAI's Responses API (OPENAI_API_KEY), which keeps the conversation: a request has only what is
# new. The hub is at HUB_URL, with the token HUB_TOKEN if it wants one.
set -eu

model=${MODEL:-gpt-5.5}
openai=${OPENAI_BASE_URL:-https://api.openai.com/v1}
hub=${HUB_URL:-http://127.0.0.1:8765}/v1
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

ask_openai() {
    curl -sS --fail-with-body -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' "$@"
}

ask_hub() {
    curl -sS --fail-with-body ${HUB_TOKEN:+-H "Authorization: Bearer $HUB_TOKEN"} -H 'Content-Type: application/json' "$@"
}

json() { # FILE EXPRESSION [ARGUMENT …]: the expression, in which `it` is what the file holds
    python3 -c 'import json, sys; it = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$@"
}

# the members {"tools": […]} go into each request as they are
ask_hub "$hub/tools?format=openai-responses" >"$work/tools"
json "$work/tools" 'json.dumps({**it, "model": sys.argv[3], "input": sys.argv[4]})' "$model" "$*" >"$work/request"

while :; do
    ask_openai "$openai/responses" -d "@$work/request" >"$work/answer"
    json "$work/answer" '"".join(part["text"] for item in it["output"] for part in item.get("content") or ())'
    grep -q '"function_call"' "$work/answer" || break

    # the answer goes to the hub as it is; 202 says that some calls still run, and the key finds the same calls
    id=$(json "$work/answer" 'it["id"]')
    status=202
    while [ "$status" = 202 ]; do
        status=$(ask_hub "$hub/tools/call?format=openai-responses" -d "@$work/answer" -o "$work/results" \
            -w '%{http_code}' -H "Idempotency-Key: $id" -H 'Prefer: wait=60')
    done
    json "$work/tools" 'json.dumps({**it, "model": sys.argv[3], "previous_response_id": sys.argv[4],
        "input": json.load(open(sys.argv[5]))["messages"]})' "$model" "$id" "$work/results" >"$work/request"
done
