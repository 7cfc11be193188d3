// coatcheck in the browser and in Node. `npm run build` in web-client/ writes the bundle; do not edit the bundle.

export * as admission from "./admission.js";
export { verifySignatures } from "./agreement.js";
export { amplify, deltaAbove, examined, kindsOf } from "./amplification.js";
export { headsFor } from "./biased-coin.js";
export { Factor, hashToPoint, readPoint } from "./blinded-sets.js";
export { BoardView } from "./board-view.js";
export { Candidates, beginSettling, disclosureOf, disclosureText, settleByLetter, settlingTerms } from "./candidates.js";
export { addReceipt, addRegistrationReceipt, addressOfTicket, collect, decoyAnswers, examine, join, openEntry, outcomeOf } from "./client.js";
export { base64, hex, text, unbase64, unhex, utf8 } from "./encoding.js";
export { Entropy } from "./entropy.js";
export { binding, seal, unseal } from "./envelope.js";
export { Misuse, Refused, Unavailable } from "./errors.js";
export { exposure } from "./exposure.js";
export { DirectClient, retry } from "./http-client.js";
export { addressOf, checkSignature, contactOf, decoySeed, keyPairs, sealingKey, verifyingKey } from "./keys.js";
export { beginLedger, checkLetters, disclosures, readLedger, recordOutcome, spend, spent, worst } from "./ledger.js";
export { read, readNotice, write } from "./letters.js";
export { checkConsistency, checkInclusion, rootOf } from "./merkle.js";
export * as messages from "./messages.js";
export * as obliviousHttp from "./oblivious-http.js";
export { randomizerOf } from "./randomizers.js";
export { RelayClient, waitRandomly, windowOf } from "./relay-client.js";
export { Rings, cellOf, cellOfNobody } from "./rings.js";
export { Session } from "./session.js";
export { Settling, newProgress, schedule } from "./settling.js";
export { readCosignedCheckpoint, readLogCheckpoint, readSignedNote } from "./signed-notes.js";
export { memoryStore } from "./store.js";
export { suiteNamed } from "./suites.js";
export { readTerms } from "./terms.js";
export { decoyTickets, readTicket, withLetters, writeTicket } from "./ticket.js";
export { checkLogged, checkPlaced, checkTerms, follow } from "./verification.js";
/** @typedef {import("./types.js").Trusted} Trusted */
/** @typedef {import("./types.js").Limit} Limit */
/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Partner} Partner */
/** @typedef {import("./types.js").Ticket} Ticket */
/** @typedef {import("./types.js").Invitation} Invitation */
/** @typedef {import("./store.js").Store} Store */
