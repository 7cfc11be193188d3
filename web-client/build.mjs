// Bundle the client into the wheel: `npm ci && npm run build`, or another place as the argument.

import { build } from "esbuild";

await build({
  entryPoints: [new URL("src/index.js", import.meta.url).pathname],
  outfile: process.argv[2] ?? new URL("../src/coatcheck/demo/page/static/client.js", import.meta.url).pathname,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "eof",
  charset: "utf8",
  logLevel: "warning",
  banner: { js: "// Built from web-client/ by `npm ci && npm run build`; edit there." },
});
