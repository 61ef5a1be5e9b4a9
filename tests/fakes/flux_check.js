// Reads [folder of the language server, [script, ...]] as JSON; writes what is wrong with each.
const { stdin, stdout, exit } = process;
let text = "";
stdin.on("data", (piece) => (text += piece));
stdin.on("end", async () => {
  const [folder, scripts] = JSON.parse(text);
  const { Lsp } = require(folder);
  const found = scripts.map(() => null);
  const lsp = new Lsp();
  lsp.onMessage((message) => {
    const { method, params } = JSON.parse(message);
    if (method !== "textDocument/publishDiagnostics") return;
    const place = Number(/^file:\/\/\/(\d+)\//.exec(params.uri)[1]);
    found[place] = params.diagnostics.filter((d) => d.severity === 1).map((d) => d.message);
    if (found.every(Array.isArray)) {
      // The server writes lines of its own before it.
      stdout.write(`\n${JSON.stringify(found)}`, () => exit(0));
    }
  });
  lsp.run();
  let id = 0;
  const send = (method, params) =>
    lsp.send(JSON.stringify({ jsonrpc: "2.0", ...(method === "initialize" ? { id: ++id } : {}), method, params }));
  await send("initialize", { capabilities: {} });
  await send("initialized", {});
  // Files of one folder are one package to it, and each of ours is its own.
  for (const [place, script] of scripts.entries()) {
    const uri = `file:///${place}/task.flux`;
    await send("textDocument/didOpen", { textDocument: { uri, languageId: "flux", version: 1, text: script } });
  }
});
