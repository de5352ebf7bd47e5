"""Run our bundle of ONNX models in each engine, and record what fails."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.nightly import recording
from tests.nightly.recording import ENVIRONMENTS, environment

RECORD = recording.RECORDS / "bundle.json"
READER = ["numpy==2.4.6", "onnx==1.23.2"]
ENGINES = {  # in the second row of openvino with its default, where a CPU has bfloat16
    "onnx": "onnx==1.23.2",
    "onnxruntime": "onnxruntime==1.32.0",
    "openvino": "openvino==2026.4.1",
    "openvino-bfloat16": "openvino==2026.4.1",
    "tinygrad": "tinygrad==0.14.0",
    "onnxruntime-node": "onnxruntime-node@1.30.0",
    "onnxruntime-web": "onnxruntime-web@1.30.0",
}


def run(engine, model, inputs):
    """What an engine returns first."""
    if engine == "onnx":
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(model).run(None, inputs)[0]
    if engine == "onnxruntime":
        from onnxruntime import InferenceSession

        return InferenceSession(model).run(None, inputs)[0]
    if engine == "tinygrad":
        from tinygrad import Tensor
        from tinygrad.nn.onnx import OnnxRunner

        made = OnnxRunner(model)({name: Tensor(x) for name, x in inputs.items()})
        return next(iter(made.values())).numpy()
    from openvino import Core

    hint = {"INFERENCE_PRECISION_HINT": "f32" if engine == "openvino" else "bf16"}
    return Core().compile_model(model, "CPU", hint)(inputs)[0]


def why(engine, folder, tolerance):
    """Why a case fails, or nothing."""
    import numpy as np
    from onnx import load_tensor, numpy_helper

    tensors = [load_tensor(path) for path in sorted(folder.glob("test_data_set_0/*.pb"))]
    *inputs, (_, want) = [(x.name, numpy_helper.to_array(x)) for x in tensors]
    try:
        got = run(engine, str(folder / "model.onnx"), dict(inputs))
        gap, size = (np.max(np.abs(x), initial=0) for x in (got - want, want))
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[-200:]}"
    right = got.shape == want.shape and gap <= tolerance * max(1, size)
    return "" if right else f"the error is {gap / max(1, size):.2g}"


def inside(engine, bundle):
    """Print what fails, where the engine is installed."""
    told, dtype = {}, "bfloat16" if "bfloat16" in engine else "float32"
    for case in json.loads((bundle / "cases.json").read_text("utf-8"))["cases"]:
        if tolerance := case["tolerance"].get(dtype):
            told[case["folder"]] = why(engine, bundle / case["folder"], tolerance)
    failing = [{"case": name, "why": why} for name, why in told.items() if why]
    passed = len(told) - len(failing)
    print(json.dumps({"run": len(told), "passed": passed, "failing": failing}))


def ask(engine, bundle):
    """What an engine makes of the bundle, in an environment of its own."""
    package = ENGINES[engine]
    if "@" in package:
        place = ENVIRONMENTS / engine
        install = ["npm", "install", "--prefix", place, "--ignore-scripts", package]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        command = ["node", Path(__file__).with_name("engine.mjs"), bundle, engine, place]
    else:
        command = [environment([[*READER, package]]), __file__, engine, bundle]
    found = recording.run(*command, DEV="PYTHON")  # tinygrad without a compiler
    head = {"engine": engine, "version": package.replace("@", "==").split("==")[1]}
    return {**head, "date": recording.today(), **json.loads(found)}


if __name__ == "__main__":
    if sys.argv[1:]:
        inside(sys.argv[1], Path(sys.argv[2]))
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        text = "import sys; from posattn.conformance import bundle as b; b.write_bundle(sys.argv[1])"
        recording.run(environment([READER]), "-c", f"{text}; print()", folder)
        found = [ask(engine, folder) for engine in ENGINES]
    recording.write(RECORD, found)
    for each in found:
        print("{engine} {version}: {passed} of {run}".format(**each))
