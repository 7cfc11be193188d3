// Strict JSON: a field that stands twice is refused, for two readers may differ on which counts.

import { Refused } from "./errors.js";

const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\]|\\.)*")|([^\s{}[\],:"]+))/gy;

/** Parse a document, or refuse it. */
export function parse(document) {
  let parsed;
  try {
    parsed = JSON.parse(document);
  } catch (error) {
    throw new Refused(`the document does not decode: ${/** @type {Error} */ (error).message}`);
  }
  refuseDoubles(document);
  return parsed;
}

/** Walk the tokens of a document that is known to be JSON. */
function refuseDoubles(document) {
  const open = [];
  let name = null;
  for (const [, mark, string] of document.matchAll(TOKEN)) {
    if (mark === "{") open.push(new Set());
    else if (mark === "[") open.push(null);
    else if (mark === "}" || mark === "]") open.pop();
    else if (mark === ":") keep(open.at(-1), name);
    name = string === undefined ? null : JSON.parse(string);
  }
}

function keep(names, name) {
  if (names.has(name)) throw new Refused(`the document does not decode: ${name} stands twice`);
  names.add(name);
}
