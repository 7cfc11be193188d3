// coatcheck in the browser. Built by `npm run build` in web-client/; do not edit the bundle.

export * as admission from "./admission.js";
export { amplify, deltaAbove } from "./accountant.js";
export * as binaryHttp from "./binary-http.js";
export { base64, hex, text, unbase64, unhex, utf8 } from "./bytes.js";
export { Blind, hashToPoint } from "./blinding.js";
export { LettersBoard } from "./board.js";
export { Candidates, beginSettling, checkPlaced, settleByLetter, settleTerms } from "./candidates.js";
export { addressOfTicket, collect, ended, examine, follow, join, keepReceipt, keepRegistered, logged } from "./client.js";
export { Entropy } from "./entropy.js";
export { binding, seal, unseal } from "./envelope.js";
export { Misuse, Refused } from "./errors.js";
export { addressOf, checkSignature, contactOf, keyPairs, sealingKey, verifyingKey } from "./keys.js";
export { beginLedger, readLedger, settleRound, spend, spent } from "./ledger.js";
export { read, readNotice, write } from "./letters.js";
export { checkConsistency, checkInclusion, rootOf } from "./merkle.js";
export * as messages from "./messages.js";
export { Nearness, offsets } from "./nearness.js";
export { headsFor } from "./mixing.js";
export * as oblivious from "./oblivious.js";
export { randomizerOf } from "./randomizers.js";
export { Relay } from "./relay.js";
export { Settling } from "./settling.js";
export { cellOf, progressFrom, schedule } from "./steps.js";
export { suiteNamed } from "./suites.js";
export { readTerms, settle } from "./terms.js";
export { readTicket, writeTicket } from "./ticket.js";
