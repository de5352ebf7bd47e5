"""Small models in whole engines: which setting was dropped (`python -m tests.nightly.twins`)."""
