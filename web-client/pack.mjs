// Make what `npm pack` packs: the bundle, the store of files for Node, the types, the licenses. Run by `prepack`.

import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const run = (...words) => execFileSync(process.execPath, words, { cwd: here, stdio: ["ignore", "ignore", "inherit"] });

rmSync(dist, { recursive: true, force: true });
mkdirSync(dist);
run("build.mjs", join(dist, "client.js"));
copyFileSync(join(here, "src/node.js"), join(dist, "node.js"));
const tsc = createRequire(import.meta.url).resolve("typescript/lib/tsc.js");
run(tsc, "--declaration", "--emitDeclarationOnly", "--outDir", join(dist, "types"));

// The licenses of the packages whose code is in the bundle.
const packages = JSON.parse(readFileSync(join(here, "package-lock.json"), "utf8")).packages;
const bundled = Object.keys(packages).filter((name) => /^node_modules\/@(hpke|noble)\//.test(name)).sort();
const notices = bundled.map((name) => {
  const folder = join(here, name);
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  if (!file || !existsSync(join(folder, file))) throw new Error(`${name} has no license file: the bundle needs one for each package`);
  return `${name.replace("node_modules/", "")} ${packages[name].version}\n\n${readFileSync(join(folder, file), "utf8")}`;
});
writeFileSync(join(dist, "LICENSES.txt"), notices.join(`\n${"-".repeat(72)}\n\n`));
