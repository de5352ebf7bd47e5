// The engine of the config scope, beside the page: posattn's own plan, which Brython runs.
"use strict";

importScripts("engine.js");
__BRYTHON__.runPythonSource("from browser import self as worker\nimport answer\nworker.answer = answer.answer", { name: "scope" });

addEventListener("message", ({ data: [text, length, factor] }) => {
  files["config.json"] = text;
  postMessage(JSON.parse(self.answer("config.json", length, factor)));
});
