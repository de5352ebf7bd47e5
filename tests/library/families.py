"""What a file of each family does that says no more than it must, in words: families.txt.

A row of data that is changed shows here. If it should: `python -m tests.library.families`.
"""

from pathlib import Path

from posattn import configs
from posattn.configs.data import data
from posattn.configs.families import FAMILIES

WRITTEN = Path(__file__).with_name("families.txt")
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 6}
ROPE = {"num_key_value_heads": 2, "rope_theta": 1e4, "rms_norm_eps": 1e-6}
MORE = ROPE | {"sliding_window": 8}
KINDS = {"": {"full_attention": {}, "sliding_attention": {}}}
KINDS |= {
    name: told.get("kinds", KINDS[""])
    for names, told in data("told.json").items()
    for name in names.split()
}

ONLY = {
    name: told["only"]
    for file in ("told.json", "equal.json", "encoders.json")
    for names, told in data(file).items()
    for name in names.split()
    if "only" in told
}


def is_read(plan, given):
    """Whether a configuration of the family is read."""
    try:
        return bool(configs.plan(given | {"model_type": plan.model_type}))
    except (TypeError, ValueError):
        return False


def lines():
    """Its name, the first of so many layers of a kind, and their words; or that it needs more."""
    for name in sorted(FAMILIES):
        each = {"layer_types": 6 * [*KINDS.get(name, KINDS[""])]}
        each["layer_types"] = each["layer_types"][:6]
        more = {}, SIZES, SIZES | ROPE, SIZES | MORE, SIZES | each, SIZES | MORE | each
        for given in more:
            try:
                plan = configs.plan(given | {"model_type": name})
            except (TypeError, ValueError):
                continue
            yield from kinds(name, plan)
            for key, *_ in ONLY.get(name, ()):
                taken = [
                    x
                    for x in (True, False, None, "absolute")
                    if is_read(plan, given | {key: x})
                ]
                yield f"{name} | {key} | only {taken}"
            break
        else:
            yield f"{name} | needs more"


def kinds(name, plan):
    """A line for each kind of layer."""
    found = {}
    for layer in plan.layers:
        norms = {
            norm and (norm.kind, norm.axes, norm.eps)
            for norm in (layer.query_norm, layer.key_norm)
        }
        words = f"{str(layer).partition(': ')[2]} of {layer.head_dim}; {layer.latent or ''}"
        words += f"; biases {[*map(int, layer.use_bias)]}"
        found.setdefault((words, *sorted(norms - {None})), []).append(layer.index)
    for (words, *norms), at in found.items():
        by = f"; norms {norms}" * bool(norms)
        yield f"{name} | {at[0]}, {len(at)} of {len(plan.layers)} | {words}{by}"


if __name__ == "__main__":
    WRITTEN.write_text("\n".join(lines()) + "\n", "utf-8")
