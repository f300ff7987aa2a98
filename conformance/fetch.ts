// Serializes a tensor, appends rows, publishes them, reads them back, and follows a problem.
import { strict as assert } from "node:assert";
import createClient from "openapi-fetch";
import type { paths } from "./build/schema";

async function main(baseUrl: string, dataset: string, tensor: string, text: string): Promise<void> {
  const client = createClient<paths>({ baseUrl });
  const instances: Record<string, unknown>[] = JSON.parse(text);

  const proto = await client.POST("/v1/tensors/serialize", {
    body: { dtype: "float32", data: [1.5, 2.5] },
    params: { query: { to: "tensorproto" } },
    parseAs: "arrayBuffer",
  });
  assert(proto.data);
  assert.equal(Buffer.from(proto.data).toString("hex"), tensor);

  const appended = await client.POST("/v1/datasets/{dataset}/records", {
    params: { path: { dataset } },
    body: { instances },
  });
  assert(appended.data && "num_records" in appended.data);
  assert.equal(appended.data.num_records, instances.length);

  const published = await client.POST("/v1/datasets/{dataset}/versions", { params: { path: { dataset } } });
  assert(published.data && "splits" in published.data);
  const { version, splits } = published.data;
  assert.equal(splits["train"]?.num_records, instances.length);

  const read = await client.GET("/v1/datasets/{dataset}/versions/{version}/records", {
    params: { path: { dataset, version }, query: { to: "json" } },
  });
  assert.deepEqual(read.data, instances);

  const refused = await client.POST("/v1/datasets/{dataset}/records", {
    params: { path: { dataset } },
    body: { instances: [{ label: "text" }] },
  });
  assert.equal(refused.error?.status, 422);
  assert.equal(refused.error?.feature, "label");
  console.log(`${instances.length} rows of ${dataset} ${version}, then ${refused.error?.code}`);
}

const [baseUrl = "", dataset = "", tensor = "", text = ""] = process.argv.slice(2);
void main(baseUrl, dataset, tensor, text);
