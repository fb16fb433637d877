// Runs the other scripts of this folder in one process: loading an SDK takes half a second of CPU time.
// Reads lines { script, asked }; prints { value } for each value that the script prints, then { ended } or { error }.
import { createInterface } from "node:readline";

const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const { script, asked } = JSON.parse(line);
  try {
    const { run } = await import(`./${script}`);
    await run(asked, (value) => write({ value }));
    write({ ended: true });
  } catch (error) {
    write({ error: error.stack });
  }
}
