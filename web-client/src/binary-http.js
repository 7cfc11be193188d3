// Binary HTTP (RFC 9292), known length: requests are written, responses read strictly. SPEC section 17.

import { big, byte, concat, unsigned, utf8 } from "./bytes.js";
import { Misuse, Refused } from "./errors.js";

const [REQUEST, RESPONSE] = [0, 1];
const NAME = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;
const VALUE = /^([!-~\x80-\xff]([\t -~\x80-\xff]*[!-~\x80-\xff])?)?$/;
const NOTHING = new Uint8Array();
const latin = (bytes) => Array.from(bytes, (one) => String.fromCharCode(one)).join("");

function varint(number) {
  const power = [0, 1, 2, 3].find((one) => number < 2 ** ((8 << one) - 2)) ?? 3;
  return unsigned(BigInt(number) | (BigInt(power) << BigInt((8 << power) - 2)), 1 << power);
}

const sized = (bytes) => concat(varint(bytes.length), bytes);

function section(fields) {
  return sized(concat(...fields.flat().map((words) => sized(utf8(words)))));
}

/**
 * Write a request, with zeros after it up to a size.
 * @param {{ method: string, scheme: string, authority: string, path: string, headers?: [string, string][], content?: Uint8Array }} request
 */
export function encodeRequest({ method, scheme, authority, path, headers = [], content = NOTHING }, size = 0) {
  const control = [method, scheme, authority, path].map((words) => sized(utf8(words)));
  const raw = concat(byte(REQUEST), ...control, section(headers), sized(content), section([]));
  if (size && raw.length > size) throw new Misuse(`this message has ${raw.length} bytes and cannot be padded to ${size}`);
  return concat(raw, new Uint8Array(Math.max(0, size - raw.length)));
}

/** Reads a message from the front. */
class Reader {
  constructor(raw) {
    this.raw = raw;
    this.at = 0;
  }

  get ended() {
    return this.at === this.raw.length;
  }

  take(size) {
    if (this.at + size > this.raw.length) throw new Refused("this Binary HTTP message is cut off");
    this.at += size;
    return this.raw.slice(this.at - size, this.at);
  }

  /** Read an integer of QUIC (RFC 9000, section 17); longer forms than needed are allowed. */
  varint() {
    const [first] = this.take(1);
    const rest = this.take((1 << (first >> 6)) - 1);
    return Number(big(concat(byte(first & 63), rest)));
  }

  sized() {
    return this.take(this.varint());
  }

  fields() {
    const inside = new Reader(this.sized());
    const found = [];
    while (!inside.ended) {
      const [name, value] = [latin(inside.sized()), latin(inside.sized())];
      if (!NAME.test(name) || !VALUE.test(value)) {
        throw new Refused("a field of this message is none of HTTP's, or not in lower case");
      }
      found.push([name, value]);
    }
    return found;
  }
}

/** Read a final response; informational ones before it are left out. */
export function decodeResponse(raw) {
  const reader = new Reader(raw);
  if (reader.varint() !== RESPONSE) throw new Refused("this is no Binary HTTP response of known length");
  let status = reader.varint();
  while (status >= 100 && status < 200) {
    reader.fields();
    status = reader.varint();
  }
  if (!(status >= 200 && status < 600)) throw new Refused("this response's status is none of HTTP's");
  // A message may end before each part that is empty.
  const headers = reader.ended ? [] : reader.fields();
  const content = reader.ended ? NOTHING : reader.sized();
  const trailers = reader.ended ? [] : reader.fields();
  if (raw.slice(reader.at).some(Boolean)) throw new Refused("this message is followed by something else than zeros");
  return { status, headers, content, trailers };
}
