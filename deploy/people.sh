#!/bin/sh
# A small crowd takes part in the round ROUND: PEOPLE riders and as many drivers. Each is a separate
# client with its own ledger and ticket and an invented place. It sends its requests through RELAY and
# accepts only what the witness has cosigned. For practice only.
set -eu
: "${ROUND:?set ROUND to the address of a round: docker compose run -e ROUND=http://127.0.0.1:8001/rounds/... people}"
keys=${KEYS:-/keys/public}
cd "${HOMES:-/tmp}"

person() {
    coatcheck ledger begin "$1.ledger" --epsilon 8 --delta 1e-3
    coatcheck take-part "$ROUND" --group "$2" --value "$3" --epsilon 4 --delta 1e-3 \
        --trust "server=$keys/server.pub" --trust "shuffler=$keys/shuffler.pub" --trust "board=$keys/board.pub" \
        --trust "witness=$keys/witness.pub" \
        --ledger "$1.ledger" --relay "${RELAY:-}" --ticket "$1.ticket" --wait 300 --json > "$1.answer" 2> "$1.log"
}

for n in $(seq "${PEOPLE:-5}"); do
    person "rider$n" riders "31.2$((n % 7)),121.4$((n % 5 + 3))" &
    person "driver$n" drivers "31.2$((n % 6)),121.4$((n % 4 + 4))" &
done
wait
for answer in rider*.answer; do
    grep -q '"partners"' "$answer" || { echo "no match in $answer" >&2; cat ./*.log >&2; exit 1; }
done
echo "everybody was answered"
