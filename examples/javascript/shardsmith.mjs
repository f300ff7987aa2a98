// A client of Shardsmith in one file, with nothing but Node.js 20 or newer. Copy it into your project; the last lines
// make a command of it. It uses node:http, since fetch has no trailers and takes more memory for a stream.
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, open, rename, rm, stat } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import path from "node:path";
import { Writable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const MOST_TRIES = 10;
const SILENCE_MS = 120_000;

/** An answer that refuses a request (RFC 9457). docs/reference/errors.md has all codes. */
export class Problem extends Error {
  constructor(status, { code = "no_problem_document", detail = "" } = {}) {
    super(`${code} (${status}): ${detail}`);
    Object.assign(this, { status, code, detail });
  }
}

/** A key: what is sent under one is stored once, however often it is sent. */
export const newKey = () => randomUUID();

export class Shardsmith {
  constructor(url = "http://127.0.0.1:8000", token = undefined) {
    this.datasets = `${url.replace(/\/$/, "")}/v1/datasets`;
    // Digests are of what is sent, so nothing is to be compressed.
    this.headers = { "Accept-Encoding": "identity", ...(token && { Authorization: `Bearer ${token}` }) };
  }

  /**
   * Appends rows; resolves to what is stored of them. `open` gives an (async) iterable of Buffers, which are sent while
   * they are made: each is taken before the next is asked for, so all may use the same memory. It is called again for
   * each try. After an error this may be repeated with the same key.
   * `parameters` are those of an append in docs/http.md, as `{ split: "test" }`. `sha256` (a Buffer) is that of the body,
   * if it is known; else it follows the body as a trailer. The service compares it with what arrives.
   */
  async put(dataset, open, { type = "application/x-ndjson", key = newKey(), parameters = {}, sha256 } = {}) {
    const headers = { "Content-Type": type, "Idempotency-Key": key };
    if (sha256) headers["Content-Digest"] = digest(sha256);
    return this.#call(
      `${dataset}/records?${new URLSearchParams(parameters)}`,
      () => ({ method: "POST", headers, body: open() }),
      json,
    );
  }

  /**
   * Makes a version of all that was appended; resolves to its number once it can be read. While it is not done the same
   * is asked again, which also takes over from a server that has died in the middle of it. `parameters` are those of a
   * publication in docs/http.md, as `{ num_shards: 8 }`.
   */
  async publish(dataset, { key = newKey(), parameters = {} } = {}) {
    const request = { method: "POST", headers: { "Idempotency-Key": key } };
    const versions = `${dataset}/versions?${new URLSearchParams(parameters)}`;
    return (await this.#call(versions, () => request, json)).version;
  }

  /** Resolves to the number of a version, or of "latest", once it can be read. Somebody else publishes it. */
  async wait(dataset, version) {
    return (await this.#call(`${dataset}/versions/${version}`, () => ({}), json)).version;
  }

  /** The rows of a split, one after the other, as text of JSON. After a broken connection it goes on with the next. */
  async *rows(dataset, version, split = "train") {
    const records = `${dataset}/versions/${await this.wait(dataset, version)}/records?split=${split}&offset=`;
    let offset = 0;
    for (let tries = 1, left = Infinity; left > 0; ) {
      const answer = await this.#call(records + offset, () => ({}), (found) => found);
      left = Number(answer.headers["record-count"] ?? NaN);
      try {
        for await (const line of linesOf(answer)) {
          if (!(left > 0)) break;
          yield line;
          [offset, left, tries] = [offset + 1, left - 1, 1];
        }
        if (left !== 0) throw new Error("The rows were cut off.");
      } catch (error) {
        if (tries++ === MOST_TRIES) throw error;
        left = Infinity;
      }
    }
  }

  /**
   * Downloads a version into a folder: shards, and the files that describe them. What is there is not downloaded again,
   * and what is there in part is completed. A file gets its name once its checksum is right.
   */
  async get(dataset, version, folder) {
    const files = `${dataset}/versions/${await this.wait(dataset, version)}`;
    const sums = (await this.#call(`${files}/SHA256SUMS`, () => ({}), whole)).toString();
    await mkdir(folder, { recursive: true });
    for (const line of sums.trimEnd().split("\n")) {
      const [sum, name] = line.split("  ");
      if (path.basename(name) !== name) throw new Error(`This is no name of a file: ${name}`);
      const target = path.join(folder, name);
      if ((await hexOf(target)) !== sum) await this.#download(`${files}/files/${name}`, sum, target);
    }
  }

  async #download(url, sum, target) {
    const part = `${target}.${sum.slice(0, 16)}.part`;
    const file = await open(part, "a");
    const resume = async () => {
      const { size } = await file.stat();
      // A file's ETag is its checksum.
      return size ? { headers: { Range: `bytes=${size}-`, "If-Range": `"${sum}"` } } : {};
    };
    try {
      await this.#call(url, resume, async (answer) => {
        if (answer.statusCode === 200) await file.truncate();
        for await (const piece of answer) await file.writeFile(piece);
        if ((await hexOf(part)) === sum) return file.sync();
        await file.truncate();
        throw new Error(`${target} was damaged on its way.`);
      });
    } catch (error) {
      if (error.status === 416) await rm(part); // it has all its bytes, but wrong ones
      throw error;
    } finally {
      await file.close();
    }
    await rename(part, target);
  }

  /** Sends a request until its answer is there and taken without an error, or refuses it for good. */
  async #call(url, prepare, take) {
    for (let tries = 1, pause = 200; ; tries++, pause = Math.min(pause * 2, 30_000)) {
      const { headers, ...rest } = await prepare();
      let after = null;
      try {
        const answer = await send(`${this.datasets}/${url}`, { ...rest, headers: { ...this.headers, ...headers } });
        after = answer.headers["retry-after"] ?? null;
        if (answer.statusCode >= 300) throw new Problem(answer.statusCode, await json(answer).catch(() => ({})));
        if (answer.statusCode !== 202) return await take(answer);
        answer.resume();
        tries = 0; // a publication is under way
      } catch (error) {
        // Without a status there was no answer, or a damaged one.
        const again = !error.status || [408, 429, 502, 503, 504, 507].includes(error.status);
        if (tries === MOST_TRIES || (!again && after === null && error.code !== "digest_mismatch")) throw error;
        console.warn(`${error.message || error.code} (again in ${after ?? pause / 1000} s)`);
      }
      await sleep(after === null ? pause : Number(after) * 1000);
    }
  }
}

/** Sends a request, of whose body no more is held than a piece; resolves to the answer. */
async function send(url, { method = "GET", headers, body }) {
  const hasTrailer = body && !("Content-Digest" in headers);
  const request = (url.startsWith("https:") ? https : http).request(url, {
    method,
    headers: hasTrailer ? { ...headers, "Transfer-Encoding": "chunked", Trailer: "Content-Digest" } : headers,
    timeout: SILENCE_MS,
  });
  const sum = createHash("sha256");
  const to = new Writable({
    highWaterMark: 1, // the next piece comes when this one is with the system
    write(piece, _, taken) {
      sum.update(piece);
      request.write(piece, taken);
    },
    final(taken) {
      if (hasTrailer) request.addTrailers({ "Content-Digest": digest(sum.digest()) });
      request.end(taken);
    },
  });
  request.on("timeout", () => request.destroy(new Error("The service is silent.")));
  request.on("error", () => {}); // `answered` has it, or there is an answer
  request.on("close", () => to.destroy());
  const answered = once(request, "response");
  // A body that fails ends the request with its error, and `answered` with that.
  pipeline(body ?? [], to).catch((error) => request.destroy(error));
  const [answer] = await answered;
  // An answer may come before all of the body is sent.
  answer.once("end", () => request.writableFinished || request.destroy());
  return answer;
}

const digest = (sha256) => `sha-256=:${sha256.toString("base64")}:`;

async function whole(answer) {
  const content = await buffer(answer);
  const said = answer.headers["repr-digest"];
  if (!content.length || (said && said !== digest(createHash("sha256").update(content).digest())))
    throw new Error("The answer was damaged on its way.");
  return content;
}

const json = async (answer) => JSON.parse(await whole(answer));

async function* linesOf(answer) {
  let rest = "";
  for await (const text of answer.setEncoding("utf8")) {
    const lines = (rest + text).split("\n");
    rest = lines.pop(); // a row that is cut off has no end
    yield* lines;
  }
}

/** A file in pieces that share their memory: a stream makes new ones, and 30 MiB of them are there at a time. */
export async function* pieces(name) {
  const file = await open(name);
  const piece = Buffer.alloc(65_536);
  try {
    for (let read; (read = await file.read(piece, 0, piece.length)).bytesRead; ) yield piece.subarray(0, read.bytesRead);
  } finally {
    await file.close();
  }
}

/** The checksum of a file. */
export async function sha256Of(name) {
  const sum = createHash("sha256");
  for await (const piece of pieces(name)) sum.update(piece);
  return sum.digest();
}

const hexOf = async (file) => ((await stat(file).catch(() => null)) ? (await sha256Of(file)).toString("hex") : null);

async function main([verb, dataset, what, a, b, c]) {
  const service = new Shardsmith(process.env.SHARDSMITH_CLIENT_URL, process.env.SHARDSMITH_CLIENT_TOKEN);
  if (verb === "put" && what === "-") {
    let isSent = false;
    const input = () => {
      if (isSent) throw new Error("Standard input cannot be sent again.");
      isSent = true;
      return process.stdin;
    };
    return `${(await service.put(dataset, input, { type: a, key: b, parameters: c })).num_records} rows`;
  }
  if (verb === "put" && what) {
    const options = { type: a, key: b, parameters: c, sha256: await sha256Of(what) };
    return `${(await service.put(dataset, () => pieces(what), options)).num_records} rows`;
  }
  if (verb === "publish" && dataset) return service.publish(dataset, { key: what, parameters: a });
  if (verb === "wait" && what) return service.wait(dataset, what);
  if (verb === "rows" && what) {
    for await (const row of service.rows(dataset, what, a)) {
      if (!process.stdout.write(`${row}\n`)) await new Promise((drained) => process.stdout.once("drain", drained));
    }
    return undefined;
  }
  if (verb === "get" && a) return service.get(dataset, what, a).then(() => a);
  throw new Error(
    "put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]], publish DATASET [KEY [PARAMETERS]], " +
      "wait DATASET VERSION, rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER",
  );
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    const said = await main(process.argv.slice(2));
    if (said) console.log(said);
  } catch (error) {
    console.error(error.message || error.code);
    process.exitCode = 1;
  }
}
