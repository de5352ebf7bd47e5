"""What engines make of our ONNX models: `python -m tests.nightly.world.bundle` asks, and writes a record."""
