"""Tests, studies and checks; other packages bring a folder of this name, which must not hide it."""
