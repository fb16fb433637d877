// A call of the tool `ask` with the official MCP SDK; prints the progress while it arrives, and then the result.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

export async function run(asked, print) {
  const headers = { authorization: `Bearer ${asked.key}` };
  const transport = new StreamableHTTPClientTransport(new URL(`${asked.url}/mcp`), { requestInit: { headers } });
  const client = new Client({ name: "test", version: "1" });

  await client.connect(transport);
  const result = await client.callTool({ name: "ask", arguments: { query: asked.text } }, undefined, {
    onprogress: (progress) => print(progress),
  });
  print({ result });
  await client.close();
}
