"""What other libraries make of our vectors: `python -m tests.conformance` asks each, and records it."""
