import { copyFile } from "node:fs/promises";
import { build } from "esbuild";

await build({
  entryPoints: ["src/main.tsx", "src/style.css"],
  bundle: true,
  minify: true,
  sourcemap: true,
  target: "es2022",
  outdir: "dist",
  define: { "process.env.NODE_ENV": '"production"' },
});
await copyFile("src/index.html", "dist/index.html");
