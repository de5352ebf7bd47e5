"""What other libraries make of our vectors: `python -m tests.nightly.conformance` asks."""
