"""Which family of ours computes what a family of transformers computes: `nox -s record -- families [NAMES]`.

Of each family of causal language models a small model is built, with random weights. What goes into each
of its attentions and what comes out is compared with the layer that posattn makes of the same
configuration, read as each family it knows. What is equal is asked again with one key changed at a time:
the answer must then be equal too, or a refusal. `docs/_records/families.json` keeps what was found; a
person writes a line of it into `src/posattn/configs/same.json`.
"""

import json
import re
import signal
import sys
import warnings
from datetime import date
from pathlib import Path

import torch
import transformers
from tqdm import tqdm
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from posattn.configs import FAMILIES, plan
from posattn.configs.data import data
from posattn.torch import LatentAttention, MultiHeadAttention

FILE = Path(__file__).parents[2] / "docs" / "_records" / "families.json"
TOKENS, VOCABULARY, WINDOW, HEAD = 24, 128, 8, 16
EQUAL = 2e-6  # of the largest output; weights and tokens are float64, or float32 where an expert needs it
DEPTH, SECONDS = 8, 90
LAYERS = "num_hidden_layers n_layer num_layers n_layers decoder_layers"
SIZES = {  # what a key holds is replaced by, if it holds a number
    "num_attention_heads n_head num_heads n_heads decoder_attention_heads": 4,
    "hidden_size n_embd d_model": 4 * HEAD,
    "intermediate_size n_inner ffn_dim decoder_ffn_dim moe_intermediate_size "
    "shared_intermediate_size shared_expert_intermediate_size": 8 * HEAD,
    LAYERS: DEPTH,
    "num_local_experts num_experts n_routed_experts moe_num_experts": 4,
    "num_experts_per_tok moe_topk top_k_experts": 2,
    "n_group topk_group": 1,
    "vocab_size": VOCABULARY,
    "sliding_window": WINDOW,
    "pad_token_id bos_token_id eos_token_id": 1,
    "q_lora_rank kv_lora_rank": 24,
    "qk_rope_head_dim rotary_dim": HEAD // 2,
    "qk_nope_head_dim v_head_dim": HEAD,
    "head_dim": 2 * HEAD,
}
ROPE = {
    "another base": {"rope_theta": 500.0},
    "half of a head": {"partial_rotary_factor": 0.5},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
}


class Late(Exception):
    """A family took too long."""


def small(family):
    """What a small model of a family changes in its class's defaults."""
    values, made = CONFIG_MAPPING[family]().to_dict(), {}
    for names, size in SIZES.items():
        for name in names.split():
            absent = name == "head_dim" and name in values and values[name] is None
            number = isinstance(values.get(name), int) and not isinstance(
                values[name], bool
            )
            if number or absent:
                made[name] = min(size, values[name]) if name in LAYERS.split() else size
    if "qk_rope_head_dim" in made and "head_dim" in values:
        made["head_dim"] = made["qk_rope_head_dim"]
    groups = values.get("num_key_value_heads")
    if isinstance(groups, int):
        heads = values.get("num_attention_heads") or groups
        made["num_key_value_heads"] = 4 // min(max(heads // groups, 1), 4)
    depth = made.get("num_hidden_layers", DEPTH)
    for name, value in values.items():
        if isinstance(value, list) and len(value) == values.get("num_hidden_layers"):
            made[name] = value[:depth]
    return made


def variations(family):
    """The small model, and the same with one key changed."""
    made = small(family)
    yield "as it is", made
    values = CONFIG_MAPPING[family](**made).to_dict()
    rope = values.get("rope_parameters")
    if isinstance(rope, dict) and not any(isinstance(v, dict) for v in rope.values()):
        for name, changes in ROPE.items():
            yield name, {**made, "rope_parameters": {**rope, **changes}}
    for name, value in values.items():
        if isinstance(value, bool) and re.search("bias|norm|window|nope|rope|gate", name):
            yield f"{name} = {not value}", {**made, name: not value}
        elif name in ("attention_multiplier", "query_pre_attn_scalar", "clip_qkv"):
            yield f"{name} = 3", {**made, name: 3.0}
    if "head_dim" in made:
        yield "narrow heads", {**made, "head_dim": HEAD}
    if "num_key_value_heads" in made:
        yield "as many keys as queries", {**made, "num_key_value_heads": 4}
    if isinstance(values.get("layer_types"), list):
        yield (
            "layers in the other order",
            {**made, "layer_types": values["layer_types"][::-1]},
        )


def build(family, changes):
    """The model, its configuration, and what goes into and out of each attention, by its name."""
    config = CONFIG_MAPPING[family](**changes)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for value in model.double().parameters():
            wide = value.ndim > 1
            value.normal_(std=value.shape[-1] ** -0.5) if wide else value.add_(
                torch.randn_like(value) / 5
            )
    try:
        return config, model.state_dict(), watched(model)
    except RuntimeError as error:
        if "ouble" not in str(error):
            raise
    return config, model.double().state_dict(), watched(model.float())


def watched(model):
    """What goes into each attention of a model and comes out, as one pass over tokens shows it."""
    found, hooks = {}, []

    def keep(name):
        def hook(module, given, named, made):
            x = named.get("hidden_states", named.get("x", given[0] if given else None))
            made = made[0] if isinstance(made, tuple) else made
            found.setdefault(name, (x.double(), made.double()))

        return hook

    for name, module in model.named_modules():
        attends = re.search(r"Attention$|SelfAttention|Attention2", type(module).__name__)
        if attends and re.search(r"\.\d+\.", f"{name}."):
            hooks.append(module.register_forward_hook(keep(name), with_kwargs=True))
    tokens = torch.randint(
        2, VOCABULARY, (2, TOKENS), generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        model(input_ids=tokens, use_cache=False)
    for hook in hooks:
        hook.remove()
    return found


def difference(config, weights, seen, family):
    """How far our layers are off, read as a family of ours; an error tells why they can't be."""
    whole, worst = plan(config.to_dict() | {"model_type": family}), 0.0
    for name, (x, wanted) in seen.items():
        index = int(re.findall(r"\.(\d+)\.", f"{name}.")[-1])
        layer = whole.layers[index]
        kind = LatentAttention if layer.latent else MultiHeadAttention
        made = kind.from_config(whole, index, weights=weights, dtype=torch.float64)
        given = (x,) if layer.latent else (x, x, x)
        with torch.no_grad():
            off = made(*given, causal=layer.causal) - wanted
        worst = max(worst, float(off.abs().max() / wanted.abs().max()))
    if not seen:
        raise ValueError("no attention was seen")
    return worst


def refused(error):
    """Why a family of ours is none, in a line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]


def explained(family, known):
    """What is found of one family: those of ours that equal it, and what they make of each change."""
    states, found, reasons, near = [], {}, {}, []
    for label, changes in variations(family):
        try:
            states.append((label, *build(family, changes)))
        except Late:
            raise
        except Exception as error:
            if not states:
                return {"built": refused(error)}
    for name in known:
        told = {"equal": [], "refused": []}
        for label, config, weights, seen in states:
            try:
                off = difference(config, weights, seen, name)
            except Late:
                raise
            except Exception as error:
                told["refused"].append(label)
                reason = refused(error)
            else:
                reason = "" if off <= EQUAL else f"{label}: off by {off:.1e}"
                told["equal"] += [label] * (off <= EQUAL)
                told["difference"] = max(off, told.get("difference", 0.0))
            if reason and (label == states[0][0] or label not in told["refused"]):
                reasons[name] = reason
                near += [name] * (label != states[0][0])
                break
        else:
            found[name] = {**told, "difference": float(f"{told['difference']:.0e}")}
    best = sorted(found, key=lambda name: (-len(found[name]["equal"]), name))
    if not best:
        return {"unlike": {name: reasons[name] for name in near or ("llama", "qwen3")}}
    return {"as": best, **found[best[0]]}


def stop(*_):
    """End a family that takes too long."""
    raise Late


def main(names):
    """Look at some families, or at all, and keep what is found."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, stop)
    record = json.loads(FILE.read_text("utf-8"))["families"] if FILE.exists() else {}
    known = [name for name in FAMILIES if name not in data("same.json")]
    for family in tqdm(names or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)):
        signal.alarm(SECONDS)
        try:
            record[family] = explained(family, known)
        except Late:
            record[family] = {"built": f"no answer in {SECONDS} seconds"}
        signal.alarm(0)
        record = dict(sorted(record.items()))
        kept = {"transformers": transformers.__version__, "date": str(date.today())}
        lines = (f"{json.dumps(name)}: {json.dumps(told)}" for name, told in record.items())
        head = json.dumps({**kept, "families": None}).removesuffix("null}")
        FILE.write_text(head + "{\n" + ",\n".join(lines) + "\n}}\n", encoding="utf-8")
    for family in names or record:
        print(family, record[family].get("as", record[family]))
    wrong = [
        f"{name} is {given}, and the night finds {record[name].get('as')}"
        for name, given in data("same.json").items()
        if name in record and given not in record[name].get("as", ())
    ]
    return "\n".join(wrong) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
