// For Node: a store of files, one per name, that only their owner can read.

import { open, mkdir, readFile, rename } from "node:fs/promises";
import { join } from "node:path";

/**
 * Keep things in a folder. What `set` was given is on the disk when it returns.
 * @param {string} folder @returns {import("./store.js").Store}
 */
export function fileStore(folder) {
  const path = (name) => join(folder, encodeURIComponent(name));
  return {
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
      const fresh = `${path(name)}.new`;
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
