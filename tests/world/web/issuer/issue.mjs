// An issuer and a client of Privacy Pass by an independent library (@cloudflare/privacypass-ts).
//
//   node issue.mjs key FILE           make a key pair in FILE, and print the public key in hex
//   node issue.mjs token FILE COUNT   read WWW-Authenticate from stdin, and print COUNT Authorization headers
import { readFileSync, writeFileSync } from "node:fs";
import { AuthorizationHeader, WWWAuthenticateHeader, publicVerif } from "@cloudflare/privacypass-ts";

const { BlindRSAMode, Client, Issuer, getPublicKeyBytes } = publicVerif;
const [verb, file, count] = process.argv.slice(2);
const kind = { name: "RSA-PSS", hash: "SHA-384" };
const hex = (raw) => Buffer.from(raw).toString("hex");
const unhex = (text) => new Uint8Array(Buffer.from(text, "hex"));

async function stored() {
  const { secret, open } = JSON.parse(readFileSync(file));
  const privateKey = await crypto.subtle.importKey("pkcs8", unhex(secret), kind, true, ["sign"]);
  const publicKey = await crypto.subtle.importKey("spki", unhex(open), kind, true, ["verify"]);
  return { privateKey, publicKey };
}

if (verb === "key") {
  const shape = { modulusLength: 2048, publicExponent: Uint8Array.from([1, 0, 1]) };
  const { privateKey, publicKey } = await Issuer.generateKey(BlindRSAMode.PSS, shape);
  const secret = hex(await crypto.subtle.exportKey("pkcs8", privateKey));
  writeFileSync(file, JSON.stringify({ secret, open: hex(await crypto.subtle.exportKey("spki", publicKey)) }));
  console.log(hex(await getPublicKeyBytes(publicKey)));
} else {
  const [demand] = WWWAuthenticateHeader.parse(readFileSync(0, "utf-8").trim());
  const { privateKey, publicKey } = await stored();
  const issuer = new Issuer(BlindRSAMode.PSS, demand.challenge.issuerName, privateKey, publicKey);
  for (let turn = 0; turn < Number(count); turn += 1) {
    const client = new Client(BlindRSAMode.PSS);
    const request = await client.createTokenRequest(demand.challenge, demand.tokenKey);
    console.log(new AuthorizationHeader(await client.finalize(await issuer.issue(request))).toString());
  }
}
