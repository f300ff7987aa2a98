// A client of Shardsmith in one file, with Node.js 20 and types that openapi-typescript makes of the service's
// openapi.json (schema.d.ts). Copy it into your project; the last lines make a command of it. Bodies are sent by node:http,
// since fetch holds all of a body that it sends as a stream.
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { mkdir, open, rename, rm, stat } from "node:fs/promises";
import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { components, operations } from "./schema.js";

export type Appended = components["schemas"]["Append"];
export type Version = components["schemas"]["Version"];
export type Code = components["schemas"]["Problem"]["code"];
export type MediaType = keyof operations["append_records"]["requestBody"]["content"];
/** A body in pieces, which are sent while they are made. */
export type Pieces = Iterable<Uint8Array> | AsyncIterable<Uint8Array>;
type Headers = Record<string, string>;
interface Request {
  method?: string;
  headers?: Headers;
  body?: Pieces;
}

const MOST_TRIES = 10;
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
    this.#datasets = `${url}/v1/datasets`;
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
    { type = "application/x-ndjson", key = newKey(), sha256 }: { type?: MediaType; key?: string; sha256?: Buffer } = {},
  ): Promise<Appended> {
    const headers: Headers = { "Content-Type": type, "Idempotency-Key": key };
    if (sha256) headers["Content-Digest"] = digest(sha256);
    return this.#call(`${dataset}/records`, () => ({ headers, body: open() }), json<Appended>);
  }

  /**
   * Makes a version of all that was appended; resolves to its number once it can be read. While it is not done the same
   * is asked again, which also takes over from a server that has died in the middle of it.
   */
  async publish(dataset: string, key = newKey()): Promise<string> {
    const request = { method: "POST", headers: { "Idempotency-Key": key } };
    return (await this.#call(`${dataset}/versions`, () => request, json<Version>)).version;
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
      left = Number(answer.headers.get("Record-Count") ?? NaN);
      try {
        for await (const line of linesOf(bodyOf(answer))) {
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
        if (answer.status === 200) await file.truncate();
        for await (const piece of bodyOf(answer)) await file.writeFile(piece);
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
  async #call<T>(url: string, prepare: () => Request | Promise<Request>, take: (answer: Response) => T | Promise<T>): Promise<T> {
    for (let tries = 1, pause = 200; ; tries++, pause = Math.min(pause * 2, 30_000)) {
      const { method = "GET", body, ...rest } = await prepare();
      const headers = { ...this.#headers, ...rest.headers };
      let after: string | null = null;
      try {
        const to = `${this.#datasets}/${url}`;
        const answer = await (body ? upload(to, headers, body) : fetch(to, { method, headers }));
        after = answer.headers.get("Retry-After");
        if (answer.status === 202) tries = 0; // a publication is under way
        if (answer.ok && answer.status !== 202) return await take(answer);
        if (!answer.ok) throw new Problem(answer.status, await json<components["schemas"]["Problem"]>(answer).catch(() => ({})));
      } catch (error) {
        // Other errors say that there was no answer, or a damaged one.
        const refused = error instanceof Problem && after === null && error.code !== "digest_mismatch";
        if (tries === MOST_TRIES || (refused && !TEMPORARY.includes(error.status))) throw error;
      }
      await sleep(after === null ? pause : Number(after) * 1000);
    }
  }
}

/** Sends an iterable, of which no more is held than the connection takes; resolves to the answer, as fetch does. */
async function upload(url: string, headers: Headers, body: Pieces): Promise<Response> {
  const hasDigest = "Content-Digest" in headers;
  const request = (url.startsWith("https:") ? https : http).request(url, {
    method: "POST",
    headers: hasDigest ? headers : { ...headers, "Transfer-Encoding": "chunked", Trailer: "Content-Digest" },
  });
  async function* hashed(): AsyncGenerator<Uint8Array> {
    const sum = createHash("sha256");
    for await (const piece of body) {
      sum.update(piece);
      yield piece;
    }
    request.addTrailers({ "Content-Digest": digest(sum.digest()) });
  }
  const answered = once(request, "response");
  // A body that fails, or a connection, ends the request with its error, and `answered` with that.
  pipeline(hasDigest ? body : hashed(), request).catch(() => {});
  const [message] = (await answered) as [IncomingMessage];
  const content = await buffer(message);
  request.destroy(); // an answer may come before all of the body is sent
  return new Response(content, { status: message.statusCode ?? 0, headers: message.headers as Headers });
}

const digest = (sha256: Buffer): string => `sha-256=:${sha256.toString("base64")}:`;

async function whole(answer: Response): Promise<Buffer> {
  const content = Buffer.from(await answer.arrayBuffer());
  const said = answer.headers.get("Repr-Digest");
  if (!content.length || (said && said !== digest(createHash("sha256").update(content).digest())))
    throw new Error("The answer was damaged on its way.");
  return content;
}

const json = async <T,>(answer: Response): Promise<T> => JSON.parse((await whole(answer)).toString());

function bodyOf(answer: Response): ReadableStream<Uint8Array<ArrayBuffer>> {
  if (!answer.body) throw new Error("The answer has no body.");
  return answer.body;
}

async function* linesOf(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<string> {
  let rest = "";
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? ""; // a row that is cut off has no end
    yield* lines;
  }
}

/** The checksum of a file. */
export async function sha256Of(file: string): Promise<Buffer> {
  const sum = createHash("sha256");
  for await (const piece of createReadStream(file)) sum.update(piece);
  return sum.digest();
}

const hexOf = async (file: string): Promise<string | null> =>
  ((await stat(file).catch(() => null)) ? (await sha256Of(file)).toString("hex") : null);

async function main([verb, dataset = "", what, a, b]: string[]): Promise<string | void> {
  const service = new Shardsmith(process.env.SHARDSMITH_CLIENT_URL, process.env.SHARDSMITH_CLIENT_TOKEN);
  if (verb === "put" && what === "-") {
    let isSent = false;
    const input = () => {
      if (isSent) throw new Error("Standard input cannot be sent again.");
      isSent = true;
      return process.stdin;
    };
    return `${(await service.put(dataset, input, { type: a as MediaType, key: b })).num_records} rows`;
  }
  if (verb === "put" && what) {
    const options = { type: a as MediaType, key: b, sha256: await sha256Of(what) };
    return `${(await service.put(dataset, () => createReadStream(what), options)).num_records} rows`;
  }
  if (verb === "publish" && dataset) return service.publish(dataset, what);
  if (verb === "wait" && what) return service.wait(dataset, what);
  if (verb === "rows" && what) {
    for await (const row of service.rows(dataset, what, a)) {
      if (!process.stdout.write(`${row}\n`)) await new Promise((drained) => process.stdout.once("drain", drained));
    }
    return;
  }
  if (verb === "get" && what && a) return service.get(dataset, what, a).then(() => a);
  throw new Error(
    "put DATASET FILE|- [MEDIA-TYPE [KEY]], publish DATASET [KEY], wait DATASET VERSION, " +
      "rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER",
  );
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    const said = await main(process.argv.slice(2));
    if (said) console.log(said);
  } catch (error) {
    console.error((error as Error).message);
    process.exitCode = 1;
  }
}
