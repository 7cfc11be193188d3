// Oblivious HTTP by independent libraries: `hpke`, `bhttp-js` and WebCrypto. Requests each path on the
// command line through a relay, and prints the answers as JSON.
import { BHttpDecoder, BHttpEncoder } from "bhttp-js";
import * as hpke from "hpke";

const [relay, gateway, ...paths] = process.argv.slice(2);
const text = (words) => new TextEncoder().encode(words);
const joined = (...parts) => new Uint8Array(parts.flatMap((part) => [...part]));
const where = `${relay}/gateways/${new URL(gateway).host}`;
const suite = new hpke.CipherSuite(
  hpke.KEM_DHKEM_X25519_HKDF_SHA256,
  hpke.KDF_HKDF_SHA256,
  hpke.AEAD_AES_128_GCM,
);

const keys = await fetch(where, { headers: { accept: "application/ohttp-keys" } });
const config = new Uint8Array(await keys.arrayBuffer()).slice(2);
const key = await suite.DeserializePublicKey(config.slice(3, 35));
const header = joined(config.slice(0, 3), [0, 1, 0, 1]);

async function hmac(secret, message) {
  const kind = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", secret, kind, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, message));
}

async function request(path) {
  const info = joined(text("message/bhttp request"), [0], header);
  const { encapsulatedSecret: enc, ctx } = await suite.SetupSender(key, { info });
  const encoded = await new BHttpEncoder().encodeRequest(new Request(new URL(path, gateway)));
  const sealed = await ctx.Seal(encoded);
  const answer = await fetch(where, {
    method: "POST",
    headers: { "content-type": "message/ohttp-req" },
    body: joined(header, enc, sealed),
  });
  const raw = new Uint8Array(await answer.arrayBuffer());
  const secret = await ctx.Export(text("message/bhttp response"), 16);
  const prk = await hmac(joined(enc, raw.slice(0, 16)), secret);
  const opening = (await hmac(prk, joined(text("key"), [1]))).slice(0, 16);
  const iv = (await hmac(prk, joined(text("nonce"), [1]))).slice(0, 12);
  const aes = await crypto.subtle.importKey("raw", opening, "AES-GCM", false, ["decrypt"]);
  const plain = await crypto.subtle.decrypt({ name: "AES-GCM", iv }, aes, raw.slice(16));
  const response = new BHttpDecoder().decodeResponse(new Uint8Array(plain));
  const body = Buffer.from(await response.arrayBuffer()).toString("hex");
  return { outer: answer.status, size: raw.length, status: response.status, body };
}

const answers = [];
for (const path of paths) answers.push(await request(path));
console.log(JSON.stringify(answers));
