// Every error that the client throws on purpose. Each message is a sentence for the reader.

/** A wrong argument: change the call. */
export class Misuse extends Error {}

/** A refusal: continuing would break a promise, so nothing was done. The message says which promise and why. */
export class Refused extends Error {
  /** @type {number | undefined} the HTTP status, if a role refused */
  status;
}

/** A role that cannot answer now: nothing was lost, so try again later. */
export class Unavailable extends Refused {}
