"""How rows of a JavaScript package run a model."""

import base64
import json
import subprocess
import sys

import numpy as np

SCRIPT = """
const ort = require("module").createRequire(process.argv[1] + "/")(process.argv[2])
const {model, inputs} = JSON.parse(require("fs").readFileSync(0))
const feeds = {}
for (const [name, {dtype, data, shape}] of Object.entries(inputs))
  feeds[name] = new ort.Tensor(dtype, dtype == "int64" ? data.map(BigInt) : data, shape)
ort.InferenceSession.create(Buffer.from(model, "base64")).then(session => session.run(feeds))
  .then(({y}) => [[...y.data], y.dims], error => error.message)
  .then(shown => console.log(JSON.stringify(shown)))
"""


def _in_node(package):
    """What runs a model in this package under Node."""

    def run(model, inputs):
        tensors = {
            name: {"dtype": x.dtype.name, "data": x.ravel().tolist(), "shape": x.shape}
            for name, x in inputs.items()
        }
        given = json.dumps({"model": base64.b64encode(model).decode(), "inputs": tensors})
        command = ["node", "-e", SCRIPT, sys.prefix, package]
        done = subprocess.run(
            command, input=given, stdout=subprocess.PIPE, text=True, check=True
        )
        shown = json.loads(done.stdout.splitlines()[-1])
        if isinstance(shown, str):
            raise RuntimeError(shown)
        data, shape = shown
        return np.array(data).reshape(shape)

    return run
