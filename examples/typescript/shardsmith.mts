// A client of Shardsmith in one file, with Node.js 20 and types that openapi-typescript makes of the service's
// openapi.json (schema.d.ts). Copy it into your project; the last lines make a command of it. It uses node:http, since fetch
// has no trailers and takes more memory for a stream.
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, open, rename, rm, stat } from "node:fs/promises";
import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import path from "node:path";
import { Writable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { components, operations } from "./schema.js";

export type Appended = components["schemas"]["Append"];
export type Version = components["schemas"]["Version"];
export type Code = components["schemas"]["Problem"]["code"];
export type MediaType = keyof operations["append_records"]["requestBody"]["content"];
/** A body in pieces, which are sent while they are made: each is taken before the next, so all may use the same memory. */
export type Pieces = Iterable<Uint8Array> | AsyncIterable<Uint8Array>;
/** Those of an append, or of a publication, in docs/http.md: `{ split: "test" }`. */
export type Parameters = Record<string, string>;
type Headers = Record<string, string>;
interface Request {
  method?: string;
  headers?: Headers;
  body?: Pieces;
}

const MOST_TRIES = 10;
const SILENCE_MS = 120_000;
const TEMPORARY = [408, 429, 502, 503, 504, 507];

/** An answer that refuses a request (RFC 9457). docs/reference/errors.md has all codes. */
export class Problem extends Error {
  readonly code: Code | "no_problem_document";
  readonly detail: string;

  constructor(
    readonly status: number,
    said: Partial<components["schemas"]["Problem"]>,
  ) {
    const { code = "no_problem_document", detail = "" } = said;
    super(`${code} (${status}): ${detail}`);
    this.code = code;
    this.detail = detail ?? "";
  }
}

/** A key: what is sent under one is stored once, however often it is sent. */
export const newKey = (): string => randomUUID();

export class Shardsmith {
  readonly #datasets: string;
  readonly #headers: Headers;

  constructor(url = "http://127.0.0.1:8000", token?: string) {
    this.#datasets = `${url.replace(/\/$/, "")}/v1/datasets`;
    // Digests are of what is sent, so nothing is to be compressed.
    this.#headers = { "Accept-Encoding": "identity", ...(token && { Authorization: `Bearer ${token}` }) };
  }

  /**
   * Appends rows; resolves to what is stored of them. `open` gives the body for each try anew. After an error this may
   * be repeated with the same key. `sha256` is that of the body, if it is known; else it follows the body as a trailer.
   * The service compares it with what arrives.
   */
  async put(
    dataset: string,
    open: () => Pieces,
    options: { type?: MediaType; key?: string; parameters?: Parameters; sha256?: Buffer } = {},
  ): Promise<Appended> {
    const { type = "application/x-ndjson", key = newKey(), parameters, sha256 } = options;
    const headers: Headers = { "Content-Type": type, "Idempotency-Key": key };
    if (sha256) headers["Content-Digest"] = digest(sha256);
    const records = `${dataset}/records?${new URLSearchParams(parameters)}`;
    return this.#call(records, () => ({ method: "POST", headers, body: open() }), json<Appended>);
  }

  /**
   * Makes a version of all that was appended; resolves to its number once it can be read. While it is not done the same
   * is asked again, which also takes over from a server that has died in the middle of it.
   */
  async publish(dataset: string, { key = newKey(), parameters }: { key?: string; parameters?: Parameters } = {}): Promise<string> {
    const request = { method: "POST", headers: { "Idempotency-Key": key } };
    return (await this.#call(`${dataset}/versions?${new URLSearchParams(parameters)}`, () => request, json<Version>)).version;
  }

  /** Resolves to the number of a version, or of "latest", once it can be read. Somebody else publishes it. */
  async wait(dataset: string, version: string): Promise<string> {
    return (await this.#call(`${dataset}/versions/${version}`, () => ({}), json<Version>)).version;
  }

  /** The rows of a split, one after the other, as text of JSON. After a broken connection it goes on with the next. */
  async *rows(dataset: string, version: string, split = "train"): AsyncGenerator<string> {
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
  async get(dataset: string, version: string, folder: string): Promise<void> {
    const files = `${dataset}/versions/${await this.wait(dataset, version)}`;
    const sums = (await this.#call(`${files}/SHA256SUMS`, () => ({}), whole)).toString();
    await mkdir(folder, { recursive: true });
    for (const line of sums.trimEnd().split("\n")) {
      const [sum = "", name = ""] = line.split("  ");
      if (path.basename(name) !== name) throw new Error(`This is no name of a file: ${name}`);
      const target = path.join(folder, name);
      if ((await hexOf(target)) !== sum) await this.#download(`${files}/files/${name}`, sum, target);
    }
  }

  async #download(url: string, sum: string, target: string): Promise<void> {
    const part = `${target}.${sum.slice(0, 16)}.part`;
    const file = await open(part, "a");
    const resume = async (): Promise<Request> => {
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
      if (error instanceof Problem && error.status === 416) await rm(part); // it has all its bytes, but wrong ones
      throw error;
    } finally {
      await file.close();
    }
    await rename(part, target);
  }

  /** Sends a request until its answer is there and taken without an error, or refuses it for good. */
  async #call<T>(
    url: string,
    prepare: () => Request | Promise<Request>,
    take: (answer: IncomingMessage) => T | Promise<T>,
  ): Promise<T> {
    for (let tries = 1, pause = 200; ; tries++, pause = Math.min(pause * 2, 30_000)) {
      const { headers, ...rest } = await prepare();
      let after: string | null = null;
      try {
        const answer = await send(`${this.#datasets}/${url}`, { ...rest, headers: { ...this.#headers, ...headers } });
        const status = answer.statusCode ?? 0;
        after = answer.headers["retry-after"] ?? null;
        if (status >= 300) throw new Problem(status, await json<components["schemas"]["Problem"]>(answer).catch(() => ({})));
        if (status !== 202) return await take(answer);
        answer.resume();
        tries = 0; // a publication is under way
      } catch (error) {
        // Other errors say that there was no answer, or a damaged one.
        const refused = error instanceof Problem && after === null && error.code !== "digest_mismatch";
        if (tries === MOST_TRIES || (refused && !TEMPORARY.includes(error.status))) throw error;
        console.warn(`${reasonOf(error)} (again in ${after ?? pause / 1000} s)`);
      }
      await sleep(after === null ? pause : Number(after) * 1000);
    }
  }
}

/** Sends a request, of whose body no more is held than a piece; resolves to the answer. */
async function send(url: string, { method = "GET", headers = {}, body }: Request): Promise<IncomingMessage> {
  const hasTrailer = body && !("Content-Digest" in headers);
  const request = (url.startsWith("https:") ? https : http).request(url, {
    method,
    headers: hasTrailer ? { ...headers, "Transfer-Encoding": "chunked", Trailer: "Content-Digest" } : headers,
    timeout: SILENCE_MS,
  });
  const sum = createHash("sha256");
  const to = new Writable({
    highWaterMark: 1, // the next piece comes when this one is with the system
    write(piece: Buffer, _, taken) {
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
  const answered = once(request, "response") as Promise<[IncomingMessage]>;
  // A body that fails ends the request with its error, and `answered` with that.
  pipeline(body ?? [], to).catch((error: Error) => request.destroy(error));
  const [answer] = await answered;
  // An answer may come before all of the body is sent.
  answer.once("end", () => request.writableFinished || request.destroy());
  return answer;
}

const reasonOf = (error: unknown): string => (error as Error).message || String((error as { code?: string }).code);
const digest = (sha256: Buffer): string => `sha-256=:${sha256.toString("base64")}:`;

async function whole(answer: IncomingMessage): Promise<Buffer> {
  const content = await buffer(answer);
  const said = answer.headers["repr-digest"];
  if (!content.length || (said && said !== digest(createHash("sha256").update(content).digest())))
    throw new Error("The answer was damaged on its way.");
  return content;
}

const json = async <T,>(answer: IncomingMessage): Promise<T> => JSON.parse((await whole(answer)).toString());

async function* linesOf(answer: IncomingMessage): AsyncGenerator<string> {
  let rest = "";
  for await (const text of answer.setEncoding("utf8")) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? ""; // a row that is cut off has no end
    yield* lines;
  }
}

/** A file in pieces that share their memory: a stream makes new ones, and 30 MiB of them are there at a time. */
export async function* pieces(name: string): AsyncGenerator<Buffer> {
  const file = await open(name);
  const piece = Buffer.alloc(65_536);
  try {
    for (let read; (read = await file.read(piece, 0, piece.length)).bytesRead; ) yield piece.subarray(0, read.bytesRead);
  } finally {
    await file.close();
  }
}

/** The checksum of a file. */
export async function sha256Of(name: string): Promise<Buffer> {
  const sum = createHash("sha256");
  for await (const piece of pieces(name)) sum.update(piece);
  return sum.digest();
}

const hexOf = async (file: string): Promise<string | null> =>
  ((await stat(file).catch(() => null)) ? (await sha256Of(file)).toString("hex") : null);

const parametersOf = (text?: string): Parameters => Object.fromEntries(new URLSearchParams(text));
async function main([verb, dataset = "", what, a, b, c]: string[]): Promise<string | void> {
  const service = new Shardsmith(process.env.SHARDSMITH_CLIENT_URL, process.env.SHARDSMITH_CLIENT_TOKEN);
  if (verb === "put" && what === "-") {
    let isSent = false;
    const input = () => {
      if (isSent) throw new Error("Standard input cannot be sent again.");
      isSent = true;
      return process.stdin;
    };
    return `${(await service.put(dataset, input, { type: a as MediaType, key: b, parameters: parametersOf(c) })).num_records} rows`;
  }
  if (verb === "put" && what) {
    const options = { type: a as MediaType, key: b, parameters: parametersOf(c), sha256: await sha256Of(what) };
    return `${(await service.put(dataset, () => pieces(what), options)).num_records} rows`;
  }
  if (verb === "publish" && dataset) return service.publish(dataset, { key: what, parameters: parametersOf(a) });
  if (verb === "wait" && what) return service.wait(dataset, what);
  if (verb === "rows" && what) {
    for await (const row of service.rows(dataset, what, a)) {
      if (!process.stdout.write(`${row}\n`)) await new Promise((drained) => process.stdout.once("drain", drained));
    }
    return;
  }
  if (verb === "get" && what && a) return service.get(dataset, what, a).then(() => a);
  throw new Error("put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]], publish DATASET [KEY [PARAMETERS]], " +
    "wait DATASET VERSION, rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER");
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    const said = await main(process.argv.slice(2));
    if (said) console.log(said);
  } catch (error) {
    console.error(reasonOf(error));
    process.exitCode = 1;
  }
}
