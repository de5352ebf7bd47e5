"""The commands of `python -m posattn`, a module each: `add(commands)` says what one understands."""
