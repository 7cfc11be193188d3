#!/bin/sh
# Make the keys of one role, once: a secret file that only the role can read, and a public file for everybody.
set -eu
role=$1
umask 077
if [ ! -e "/keys/own/$role.key" ]; then
    coatcheck keygen "$role" --out "/keys/own/$role.key" > "/keys/public/$role.pub"
    chmod 644 "/keys/public/$role.pub"
fi
if [ ! -e /keys/own/operator.token ]; then
    python -c 'from coatcheck.entropy import system; print(system().token(24).hex())' \
        > /keys/own/operator.token
fi
