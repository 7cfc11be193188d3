// coatcheck in the browser and in Node. Built by `npm run build` in web-client/; do not edit the bundle.

export * as admission from "./admission.js";
export { amplify, deltaAbove } from "./accountant.js";
export * as binaryHttp from "./binary-http.js";
export { base64, hex, text, unbase64, unhex, utf8 } from "./bytes.js";
export { Blind, hashToPoint } from "./blinding.js";
export { BoardView } from "./board.js";
export { Candidates, beginSettling, settleByLetter, settleTerms } from "./candidates.js";
export { addressOfTicket, collect, ended, examine, join, keepReceipt, keepRegistered, openEntry } from "./client.js";
export { Direct } from "./direct.js";
export { Entropy } from "./entropy.js";
export { binding, seal, unseal } from "./envelope.js";
export { Misuse, Refused, Unavailable } from "./errors.js";
export { addressOf, checkSignature, contactOf, keyPairs, sealingKey, verifyingKey } from "./keys.js";
export { beginLedger, readLedger, settleRound, spend, spent } from "./ledger.js";
export { read, readNotice, write } from "./letters.js";
export { checkLogged, checkPlaced, checkTerms, follow } from "./log.js";
export { checkConsistency, checkInclusion, rootOf } from "./merkle.js";
export * as messages from "./messages.js";
export { Nearness, offsets } from "./nearness.js";
export { headsFor } from "./mixing.js";
export { readLogCheckpoint, readNote, readWatched } from "./notes.js";
export * as oblivious from "./oblivious.js";
export { randomizerOf } from "./randomizers.js";
export { Relay } from "./relay.js";
export { Settling } from "./settling.js";
export { cellOf, progressFrom, schedule } from "./steps.js";
export { memoryStore } from "./store.js";
export { suiteNamed } from "./suites.js";
export { readTerms, settle } from "./terms.js";
export { linger, windowOf } from "./windows.js";
export { patiently } from "./patience.js";
export { readTicket, writeTicket } from "./ticket.js";
export { Visit } from "./visit.js";
/** @typedef {import("./types.js").Trusted} Trusted */
/** @typedef {import("./types.js").Limit} Limit */
/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Partner} Partner */
/** @typedef {import("./types.js").Ticket} Ticket */
/** @typedef {import("./types.js").Invitation} Invitation */
/** @typedef {import("./store.js").Store} Store */
