// A store for Node: one file per name, readable by its owner only.

import { open, mkdir, readFile, rename } from "node:fs/promises";
import { join, resolve } from "node:path";

/** One lock object per folder, so that all stores of a folder share it. @type {Map<string, object>} */
const folders = new Map();
let writes = 0;

/**
 * Return a store in a folder. When `set` returns, the text is on the disk. Use a folder in one process at a time: two
 * processes that join rounds at the same time would not see each other's spending.
 * @param {string} folder @returns {import("./store.js").Store}
 */
export function fileStore(folder) {
  const path = (name) => join(folder, encodeURIComponent(name));
  const turn = folders.get(resolve(folder)) ?? {};
  folders.set(resolve(folder), turn);
  return {
    turn,
    async get(name) {
      try {
        return await readFile(path(name), "utf8");
      } catch (error) {
        if (/** @type {any} */ (error).code === "ENOENT") return null;
        throw error;
      }
    },
    async set(name, text) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      writes += 1;
      const fresh = `${path(name)}.${process.pid}-${writes}.new`; // two calls may write at once
      await synced(fresh, "w", (file) => file.writeFile(text));
      await rename(fresh, path(name));
      await synced(folder, "r", () => {});
    },
  };
}

/** Run `work` on a file and wait until the disk has it. */
async function synced(path, flags, work) {
  const file = await open(path, flags, 0o600);
  try {
    await work(file);
    await file.sync();
  } finally {
    await file.close();
  }
}
