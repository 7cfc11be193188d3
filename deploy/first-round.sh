#!/bin/sh
# Open the round of DRAFT (draft.json by default) at SERVER as its operator, check the service as a person meets it, and play the
# round's people. For practice only.
set -eu
keys=${KEYS:-/keys/public}
here=$(dirname "$0")
ROUND=$(coatcheck round open "${DRAFT:-$here/draft.json}" --server "$SERVER" --token "${OPERATOR:-/keys/own/operator.token}" \
    --closes 5 --expires 600 --json | sed -n 's/.*"url": *"\([^"]*\)".*/\1/p')
export ROUND
echo "the round is $ROUND"
coatcheck check "$ROUND" --trust "server=$keys/server.pub" --trust "shuffler=$keys/shuffler.pub" \
    --trust "board=$keys/board.pub" --trust "witness=$keys/witness.pub" --relay "${RELAY:-}"
exec sh "$here/people.sh"
