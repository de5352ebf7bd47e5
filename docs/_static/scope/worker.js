// The engine of the config scope, beside the page: posattn's own plan, which Brython runs.
"use strict";

importScripts("engine.js");
__BRYTHON__.runPythonSource(`import json
import answer
import decoder
from browser import self as worker
json.loads = decoder.JSONDecoder().decode
worker.answer = answer.answer`, { name: "scope" });

addEventListener("message", ({ data: [text, length, factor] }) => {
  files["config.json"] = text;
  postMessage(JSON.parse(answer("config.json", length, factor)));
});
