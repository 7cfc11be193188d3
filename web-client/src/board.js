// The board as somebody who settles asks it: letters from a place on, posting, and proofs.
//
// How bytes are fetched is the caller's: `peer` has `get(url)` and `send(url, bytes)`, as a Relay does,
// and `remember` keeps the last checkpoint, which every later one must continue. SPEC section 9.

import { concat, hex, text, unhex } from "./bytes.js";
import { checkPlaced } from "./candidates.js";
import { Refused } from "./errors.js";
import * as messages from "./messages.js";

const json = (raw) => JSON.parse(text(raw));

export class LettersBoard {
  constructor(round, { peer, before = null, remember = () => {} }) {
    Object.assign(this, { round, peer, before, remember });
    this.url = round.terms.board.url;
    this.at = `${this.url}/rounds/${hex(round.digest)}/letters`;
  }

  /** Every posting from a place on, page by page; an empty page is the last. */
  async letters(since) {
    const size = messages.postingSize(this.round);
    const found = [];
    for (;;) {
      const page = await this.peer.get(`${this.at}?since=${since + found.length}`);
      if (page.length % size) throw new Refused("the board's letters do not have the size of this round's");
      if (!page.length) return found;
      for (let at = 0; at < page.length; at += size) found.push(page.slice(at, at + size));
    }
  }

  /** Post letters in one request, each after its recipient's contact; the place of the first in the log. */
  async post(stamped) {
    const { place } = json(await this.peer.send(this.at, concat(...stamped)));
    if (!Number.isSafeInteger(place)) throw new Refused("the board does not say where your letter is: it may be lost");
    return place;
  }

  /** Check that the log has one's own notices, and only grew since the last checkpoint. */
  async prove(placed) {
    const checkpoint = await this.peer.get(`${this.url}/checkpoint`);
    const { size } = messages.readCheckpoint(checkpoint, this.round);
    const old = this.before?.size ?? 0;
    const since = 0 < old && old < size ? await this.path(`consistency?old=${old}&new=${size}`) : [];
    const paths = [];
    for (const [place] of placed) paths.push(await this.path(`inclusion?place=${place}&size=${size}`));
    this.before = checkPlaced(placed, this.round, { checkpoint, paths, since }, this.before);
    await this.remember(this.before);
  }

  async path(question) {
    return json(await this.peer.get(`${this.url}/proofs/${question}`)).path.map(unhex);
  }
}
