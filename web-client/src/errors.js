// Everything that can go wrong, told to the reader: `Misuse` is the caller's, `Refused` the world's.

export class Misuse extends Error {}

/** Going on would break a promise, so nothing was done; the message says which and why. */
export class Refused extends Error {
  /** @type {number | undefined} the status with which a role refused, if one did */
  status;
}

/** Somebody cannot answer now; nothing was lost, and trying again later is right. */
export class Unavailable extends Refused {}
