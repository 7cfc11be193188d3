// What a role answers: what it took, what it refuses in its own words, and what is worth another try.

import { text } from "./bytes.js";
import { Refused, Unavailable } from "./errors.js";

const LATER = [408, 425, 429, 500, 502, 503, 504, 507];

/** Give what a role answered, or refuse with its own sentence. */
export function taken(answer) {
  if (answer.status >= 200 && answer.status < 300) return answer;
  let detail = `the role answers with ${answer.status}`;
  try {
    detail = JSON.parse(text(answer.content)).detail ?? detail;
  } catch {
    // not a problem document: the status has to do
  }
  const Kind = LATER.includes(answer.status) ? Unavailable : Refused;
  throw Object.assign(new Kind(detail), { status: answer.status });
}
