# A whole round over files, as its people would type it. Run by tests/world/test_transcripts.py, which
# gives `coatcheck` and an empty folder. `fails CODE command...` expects a refusal.
set -euo pipefail

fails() {
    local expected=$1 code=0
    shift
    "$@" >out.txt 2>err.txt || code=$?
    test "$code" = "$expected" || { echo "exit $code, not $expected: $*"; cat err.txt; exit 1; }
    grep -q '^coatcheck: ' err.txt || { echo "no sentence for: $*"; exit 1; }
}

# -- everybody who runs the round makes keys and publishes the public ones
coatcheck keygen server --url https://server.example --out server.key >server.pub
coatcheck keygen shuffler --url https://shuffler.example --out shuffler.key >shuffler.pub
coatcheck keygen board --url https://board.example --out board.key >board.pub
test "$(stat -c %a server.key)" = 600
fails 2 coatcheck keygen server --out server.key
fails 2 coatcheck keygen server --url http://server.example --out other.key

# -- the server proposes, the shuffler signs, once
cat >draft.json <<'JSON'
{"round": "taxi 7",
 "task": {"name": "least-cost-matching"},
 "groups": [
  {"name": "riders", "minimum": 3, "delta": 1e-4, "randomizer": {"name": "minkowski", "epsilon": 1.0,
    "domain": {"kind": "box", "lo": [0, 0], "hi": [1, 1], "steps": 65536}}},
  {"name": "drivers", "minimum": 3, "delta": 1e-4, "randomizer": {"name": "minkowski", "epsilon": 1.0,
    "domain": {"kind": "box", "lo": [0, 0], "hi": [1, 1], "steps": 65536}}}]}
JSON
propose="coatcheck terms propose draft.json --key server.key --shuffler shuffler.pub --board board.pub"
$propose --opens -1h --closes -1m --expires +1h --out proposed.json
fails 1 coatcheck terms check proposed.json
# terms that send people elsewhere, or to nobody knows where, are not signed
sed 's/"https:..shuffler.example"/"https:\/\/shuffler.other"/' shuffler.pub >elsewhere.pub
coatcheck terms propose draft.json --key server.key --shuffler elsewhere.pub --board board.pub --out elsewhere.json
fails 1 coatcheck terms sign elsewhere.json --key shuffler.key --pledges elsewhere.pledges --out signed.json
grep -q 'is at https:..shuffler.other, but it is at https:..shuffler.example' err.txt
test ! -e signed.json
grep -v '"url"' board.pub | sed 's/\("sealing": ".*"\),/\1/' >nowhere.pub
fails 2 coatcheck terms propose draft.json --key server.key --shuffler shuffler.pub --board nowhere.pub --out nowhere.json
grep -q 'keygen --url' err.txt
coatcheck terms sign proposed.json --key shuffler.key --pledges pledges --out terms.json
coatcheck terms check terms.json --trust server=server.pub --trust shuffler=shuffler.pub --trust board=board.pub --json >check.json
grep -q '"task": "least-cost-matching"' check.json
grep -q '"board": "https://board.example"' check.json

# -- another version under the same name is not signed: the crowd cannot be split
$propose --opens -2h --closes -1m --expires +1h --out other.json
fails 1 coatcheck terms sign other.json --key shuffler.key --pledges pledges --out split.json
test ! -e split.json

# -- people join; too dear a round, a stranger's key or a bad value let nothing out
join() {
    coatcheck join --terms terms.json --trust server=server.pub --trust shuffler=shuffler.pub --trust board=board.pub \
        --epsilon 1 --delta 1e-4 --ledger "$1.ledger" --ticket "$1.ticket" --out "$1.upload" "${@:2}"
}
coatcheck ledger begin alice.ledger --epsilon 1.5 --delta 1e-4
fails 1 join alice --group riders --value 0.2,0.2 --epsilon 0.5
fails 2 join alice --group riders --value 7,7
fails 1 coatcheck join --terms terms.json --trust server=server.pub --group riders --value 0.2,0.2 \
    --epsilon 1 --delta 1e-4 --ledger alice.ledger --ticket alice.ticket --out alice.upload
# a key is trusted in its role; whom one relies on must take part; a bare file is for any role
fails 1 coatcheck terms check terms.json --trust server=server.pub --trust shuffler=board.pub --trust board=shuffler.pub
grep -q 'not one you trust as a shuffler' err.txt
coatcheck keygen shuffler --out second.key >second.pub
known="--trust server=server.pub --trust board=board.pub --trust shuffler=shuffler.pub"
fails 1 coatcheck terms check terms.json $known --trust shuffler=second.pub
grep -q 'leave out shuffler 2 of the 2' err.txt
coatcheck terms check terms.json ${known},second.pub >/dev/null
coatcheck terms check terms.json --trust server.pub --trust shuffler.pub --trust board.pub 2>err.txt >/dev/null
grep -q 'trusted in every role' err.txt
test ! -e alice.ticket && test ! -e alice.upload
for person in ada amy bob ben bill; do cp -p alice.ledger "$person.ledger"; done
for person in alice ada amy; do
    echo 0.2,0.3 | join "$person" --group riders --value - >/dev/null
done
for person in bob ben; do
    join "$person" --group drivers --value 0.8,0.7 >/dev/null
done
test "$(stat -c %a alice.ticket)" = 600

# -- a retry writes the same bytes and costs nothing
cp alice.upload first.upload
rm alice.upload
join alice --group riders --value 0.9,0.9 --json >again.json
cmp first.upload alice.upload
rm first.upload
coatcheck ledger show alice.ledger --json >ledger.json
test "$(grep -c 'taxi 7/' ledger.json)" = 1

# -- too few drivers: nothing is released
fails 1 coatcheck shuffle *.upload --terms terms.json --key shuffler.key --out batch
test ! -e batch
join bill --group drivers --value 0.5,0.5 >/dev/null
echo rubbish >rubbish.upload
coatcheck shuffle *.upload --terms terms.json --key shuffler.key --receipts receipts --out batch --json >taken.json
grep -q '"taken": 6' taken.json
grep -q '"turned_away": 1' taken.json

# -- the server answers, people collect
fails 2 coatcheck answer batch --terms terms.json --key shuffler.key --out bulletin
coatcheck answer batch --terms terms.json --key server.key --out bulletin --json >answer.json
grep -q '"outcome": "answered"' answer.json
coatcheck collect --terms terms.json --ticket alice.ticket --bulletin bulletin \
    --receipt receipts/alice.upload.receipt --json >alice.json
grep -q '"group": "drivers"' alice.json
contact() { sed -n 's/.*"contact": "\([0-9a-f]*\)".*/\1/p' "$1"; }

# -- Alice writes to her match; the match, and nobody else, reads it and writes back
coatcheck write --terms terms.json --ticket alice.ticket --to "$(contact alice.json)" \
    --message 'corner of 5th' --out 1.letter
reader=
for person in bob ben bill; do
    coatcheck read 1.letter --terms terms.json --ticket "$person.ticket" --json >"$person.json"
    if grep -q 'corner of 5th' "$person.json"; then reader+=$person; fi
done
case $reader in bob | ben | bill) ;; *) echo "read by: $reader"; exit 1 ;; esac
coatcheck write --terms terms.json --ticket "$reader.ticket" --to "$(contact "$reader.json")" \
    --message 'coming' --out 2.letter
coatcheck read 1.letter 2.letter --terms terms.json --ticket alice.ticket --json | grep -q coming
coatcheck read 2.letter --terms terms.json --ticket alice.ticket --json | grep -q Replayed

# -- anybody looks, nobody sees a secret
for file in alice.ticket receipts/alice.upload.receipt bulletin 1.letter; do
    coatcheck inspect "$file" --terms terms.json >>seen.txt
done
test "$(grep -c '^kind' seen.txt)" = 4
if grep -q "$(sed -n 's/.*"seed": "\(.*\)".*/\1/p' alice.ticket)" seen.txt; then exit 1; fi
fails 2 coatcheck inspect draft.json
chmod 644 alice.ticket
fails 1 coatcheck collect --terms terms.json --ticket alice.ticket --bulletin bulletin
