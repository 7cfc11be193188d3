// Types of arguments and results, for editors and type checkers; no code.

/**
 * @typedef {{ epsilon: number, delta: number, disclosures?: number }} Limit the most that something may cost; in one round
 *   also how many candidates may learn an answer by letter, 40 unless stated, 0 for nobody
 */
/** @typedef {{ candidates: number, cells: number, rings: number, chooses: boolean }} Disclosure what letters may tell candidates */
/** @typedef {{ least: number, of: (string[] | Quorum)[] }} Quorum at least so many of these witnesses, or quorums */
/**
 * @typedef {object} Trusted the keys that you got over another channel, in hex, by role
 * @property {string[]} [server]
 * @property {string[][]} [shufflers] one list per shuffler that you rely on: its keys, more than one during a key change
 * @property {string[]} [board]
 * @property {string[][] | Quorum} [witnesses] one list per witness whose cosignature of the board's log counts, or a quorum
 * @property {number} [demanded] how many of a list of witnesses must have cosigned the log; all by default
 * @property {string[]} [anywhere] keys that are trusted in any role, which is weaker
 */
/** @typedef {{ document: string, server: string, shufflers: (string | null)[] }} SignedTerms */
/** @typedef {import("./terms.js").Round} Round */
/** @typedef {number[] | string} Simple a place with one number per axis, or a label */
/** @typedef {Simple | Record<string, Simple>} Value a place or a label, or the fields of a product by name */
/**
 * @typedef {object} Randomizer a mechanism, built from the parameters in the terms
 * @property {string} name
 * @property {string[]} decodes
 * @property {bigint} [heads] how many of 2^64 tosses choose the cap, or report; each field has a separate coin
 * @property {Randomizer[]} [parts] the mechanisms of the fields
 * @property {number[]} low
 * @property {number[]} high
 * @property {(value: Value) => number[]} snap the lattice point of a value
 * @property {(point: number[], entropy: import("./entropy.js").Entropy) => number[]} respond a fresh report
 * @property {(entropy: import("./entropy.js").Entropy) => number[]} [decoy] a report drawn uniformly from all
 * @property {() => Law} law
 * @property {(report: number[]) => Place} place where the server will put a report
 * @property {(point: number[], turn: number) => any[]} center
 */
/** @typedef {Simple | null | Record<string, Simple | null>} Place */
/** @typedef {{ epsilon: number, cap: number, apart: number, kernel: number, exact?: boolean, binary?: boolean, axes?: number }} TwoLevel `exact`: nothing is rounded but floats; `binary`: there are two reports; `axes`: of caps that are boxes, else 0 */
/** @typedef {(TwoLevel | { epsilon: number, fields: TwoLevel[] }) & { rate?: number, decoys?: number }} Law `decoys`: how many each person sends beside the report */
/**
 * @typedef {object} Invitation terms that keep their promise, for one group
 * @property {Round} round
 * @property {number} group
 * @property {any} of the group's part of the terms
 * @property {Randomizer} randomizer
 * @property {number} epsilon the cost of the round, recomputed by this client
 * @property {number} delta
 * @property {number} local the cost if the round does not end as promised
 * @property {Disclosure | null} letters what letters tell candidates if you settle
 */
/**
 * @typedef {object} Ticket your part in a round; anyone who reads it can read your answer
 * @property {string} round
 * @property {Uint8Array} digest
 * @property {string} suite
 * @property {number} group
 * @property {Uint8Array} seed
 * @property {Uint8Array} upload
 * @property {Uint8Array[]} registrations
 * @property {Uint8Array[]} registered
 * @property {Uint8Array} receipt
 * @property {number} written
 * @property {[Uint8Array, number][]} seen
 * @property {any} [settling]
 * @property {{ written: number, seen: [Uint8Array, number][], settling?: any }[]} decoys the letters of each decoy
 */
/**
 * @typedef {object} Partner a person whom an answer names
 * @property {number} group
 * @property {Uint8Array} contact
 * @property {Uint8Array} payload
 * @property {Uint8Array} [address]
 * @property {number[]} [report]
 * @property {Place} [place]
 */
/**
 * @typedef {object} Answer
 * @property {number[]} values
 * @property {number[]} shared
 * @property {Partner[]} partners
 * @property {Partner[]} second candidates for a second pass of settling
 * @property {number[]} sizes how many entries each group has on the board
 */
/** @typedef {{ answered: boolean, words: string }} Outcome the outcome of a round */
/** @typedef {{ size: number, root: Uint8Array }} Checkpoint */
/** @typedef {{ sender: { raw: Uint8Array, address: Uint8Array }, counter: number, body: Uint8Array }} Letter */
/** @typedef {{ coatcheck: string, epsilon: number, delta: number, entries: any[] }} Ledger */
/**
 * @typedef {object} Peer the client for requests: a RelayClient or a DirectClient
 * @property {(url: string) => Promise<Uint8Array>} get
 * @property {(url: string) => Promise<Uint8Array>} whole
 * @property {(url: string, body: Uint8Array, headers?: [string, string][]) => Promise<Uint8Array>} send
 */

export {};
