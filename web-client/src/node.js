// For Node: a store of files, one per name, that only their owner can read.

import { open, mkdir, readFile, rename } from "node:fs/promises";
import { join, resolve } from "node:path";

/** One object per folder, so that all stores of a folder are known to be one. @type {Map<string, object>} */
const folders = new Map();
let writes = 0;

/**
 * Keep things in a folder. What `set` was given is on the disk when it returns. A folder is for one process at a time: two
 * that join rounds at the same moment would not know what the other one spends.
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
      const fresh = `${path(name)}.${process.pid}-${writes}.new`; // two may write at once
      await written(fresh, "w", (file) => file.writeFile(text));
      await rename(fresh, path(name));
      await written(folder, "r", () => {});
    },
  };
}

/** Do something with a file and wait until the disk has it. */
async function written(path, flags, work) {
  const file = await open(path, flags, 0o600);
  try {
    await work(file);
    await file.sync();
  } finally {
    await file.close();
  }
}
