// Serializes a tensor, appends rows, publishes them, reads them back, and follows a problem.
import { strict as assert } from "node:assert";
import { appendRecords, publishVersion, readRecords, serializeTensors } from "./build/hey";
import { createClient } from "./build/hey/client";

async function main(baseUrl: string, dataset: string, tensor: string, text: string): Promise<void> {
  const client = createClient({ baseUrl });
  const instances: Record<string, unknown>[] = JSON.parse(text);
  const path = { dataset };

  const proto = await serializeTensors({
    client,
    body: { dtype: "float32", data: [1.5, 2.5] },
    query: { to: "tensorproto" },
    parseAs: "arrayBuffer",
  });
  // The generator types an answer by its JSON alone, whatever `parseAs` says.
  assert.equal(Buffer.from(proto.data as unknown as ArrayBuffer).toString("hex"), tensor);

  const appended = await appendRecords({ client, path, body: { instances } });
  assert(appended.data && "num_records" in appended.data);
  assert.equal(appended.data.num_records, instances.length);

  const published = await publishVersion({ client, path });
  assert(published.data && "splits" in published.data);
  const { version, splits } = published.data;
  assert.equal(splits["train"]?.num_records, instances.length);

  const read = await readRecords({ client, path: { dataset, version }, query: { to: "json" } });
  assert.deepEqual(read.data, instances);

  const refused = await appendRecords({ client, path, body: { instances: [{ label: "text" }] } });
  assert.equal(refused.error?.status, 422);
  assert.equal(refused.error?.feature, "label");
  console.log(`${instances.length} rows of ${dataset} ${version}, then ${refused.error?.code}`);
}

const [baseUrl = "", dataset = "", tensor = "", text = ""] = process.argv.slice(2);
void main(baseUrl, dataset, tensor, text);
