/** The text so far of the blocks of a result, joined from deltas (section 3.2). */

import type { StreamEvent } from "./events.ts";

/** Characters that are joined. What comes after them is in the events only. */
const MOST = 1 << 24;

export class Joined {
  /** Nothing is missing. */
  isWhole = true;
  #pieces: { seq: number; index: number; text: string }[] = [];
  #length = 0;

  add(event: StreamEvent): void {
    if (event.type === "reset") {
      this.#pieces = this.#pieces.filter((piece) => piece.seq < event.data.discard_from);
      this.#length = this.#pieces.reduce((sum, piece) => sum + piece.text.length, 0);
    } else if (event.type === "delta" && event.data.channel === "content") {
      const text = event.data.content.map((block) => (block.type === "text" ? block.text : "")).join("");
      if (this.#length + text.length > MOST) this.isWhole = false;
      if (!text || this.#length + text.length > MOST) return;
      this.#pieces.push({ seq: event.seq, index: event.data.index, text });
      this.#length += text.length;
    }
  }

  text(index: number): string {
    return this.#pieces.map((piece) => (piece.index === index ? piece.text : "")).join("");
  }
}
