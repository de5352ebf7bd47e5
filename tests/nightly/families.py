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
from itertools import permutations
from pathlib import Path

import torch
import transformers
from tqdm import tqdm
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from posattn.configs import FAMILIES, plan
from posattn.configs.data import data
from posattn.torch import LatentAttention, MultiHeadAttention

FILE = Path(__file__).parents[2] / "docs" / "_records" / "families.json"
TOKENS, VOCABULARY, WINDOW, HEAD = 24, 128, 8, 16
EQUAL = 2e-6  # of the largest output; weights and tokens are float64, or float32 where an expert needs it
DEPTH, SECONDS = 8, 90
LAYERS = "num_hidden_layers n_layer num_layers n_layers decoder_layers encoder_layers"
SIZES = {  # what a key holds is replaced by, if it holds a number
    "num_attention_heads n_head num_heads n_heads decoder_attention_heads "
    "encoder_attention_heads attention_heads mamba_n_heads mamba_num_heads "
    "n_mamba_heads indexer_compress_ratio": 4,
    "hidden_size n_embd d_model emb_dim mamba_d_ssm lru_width embed_dim": 4 * HEAD,
    "attention_hidden_size": 8 * HEAD,
    "mamba_d_head mamba_head_dim mamba_headdim": HEAD,
    "mamba_expand zero_expert_num num_expert_group indexer_kv_heads": 1,
    "indexer_budget keep_window_size": 8,
    "intermediate_size n_inner ffn_dim decoder_ffn_dim moe_intermediate_size "
    "shared_intermediate_size shared_expert_intermediate_size ffn_hidden_size "
    "expert_ffn_hidden_size": 8 * HEAD,
    LAYERS: DEPTH,
    "num_local_experts num_experts n_routed_experts moe_num_experts": 4,
    "num_experts_per_tok num_experts_per_token moe_topk top_k_experts indexer_n_heads": 2,
    "n_group n_groups topk_group": 1,
    "vocab_size": VOCABULARY,
    "sliding_window": WINDOW,
    "pad_token_id bos_token_id eos_token_id": 1,
    "q_lora_rank kv_lora_rank": 24,
    "qk_rope_head_dim rotary_dim": HEAD // 2,
    "qk_nope_head_dim v_head_dim": HEAD,
    "head_dim attention_head_dim indexer_head_dim": 2 * HEAD,
}
OWN = {  # of one family, whose class leaves it open, or fixes what then must fit
    "bamba": {"attn_layer_indices": [1, 4]},
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 8}},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "vocab_size_per_layer_input": VOCABULARY,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], DEPTH // 2]]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * (DEPTH // 2)},
    "plbart": {"d_model": 12 * HEAD},
    "qwen3_5_text": {"rope_parameters": {"mrope_section": [2, 1, 1]}},
    "reformer": {"is_decoder": True, "axial_pos_embds_dim": [2 * HEAD] * 2},
}
NULL = "head_dim indexer_n_heads indexer_kv_heads indexer_head_dim indexer_budget indexer_compress_ratio"
FEW = re.compile("layer|per_tok|topk")
INNER = re.compile("_config$|^decoder$")
ALONE = "values, gates, a norm or the output"  # of a token that sees only itself
OTHER = "positions, scores, a window or a choice of keys"
PATTERNS = (
    "layer_types",
    "layers_block_type",
    "block_types",
    "attn_layers",
    "attention_layers",
)
FEED = re.compile("mlp|moe|expert|feed|norm|router|act|resid|_input")
RESIZED = (lambda n: 2 * n, lambda n: 4 * n, lambda n: n + 1, lambda n: n // 2)
ATTENTION = "full", "sliding", "chunked"
ROPE = {
    "another base": {"rope_theta": 500.0},
    "half of a head": {"partial_rotary_factor": 0.5},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
}


class Late(BaseException):
    """A family took too long; no `except Exception` catches it."""


def sized(values):
    """What sizes of a configuration become."""
    made = {}
    for names, size in SIZES.items():
        for name in names.split():
            value = values.get(name)
            if type(value) is int or (
                name in values and value is None and name in NULL.split()
            ):
                made[name] = min(size, value) if FEW.search(name) else size
    if "qk_rope_head_dim" in made and "head_dim" in values:
        made["head_dim"] = made["qk_rope_head_dim"]
    groups = values.get("num_key_value_heads")
    if isinstance(groups, int):
        heads = values.get("num_attention_heads") or groups
        made["num_key_value_heads"] = 4 // min(max(heads // groups, 1), 4)
    nested = {n: v for n, v in values.items() if isinstance(v, dict) and INNER.search(n)}
    return made | {name: value | sized(value) for name, value in nested.items()}


def small(family):
    """What a small model of a family changes in its class's defaults."""
    values = CONFIG_MAPPING[family]().to_dict()
    made = sized(values)
    for name, value in OWN.get(family, {}).items():
        inner = made.get(name, values.get(name))
        made[name] = inner | value if isinstance(value, dict) else value
    if values.get("rope_parameters") == {}:
        rope = {"rope_type": "default", "rope_theta": 1e4}
        made["rope_parameters"] = dict.fromkeys(values["layer_types"], rope)
    if values.get("languages"):
        made["default_language"] = values["languages"][0]
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
        if isinstance(value, bool) and re.search(
            "bias|norm|window|nope|rope|gate|is_decoder", name
        ):
            yield f"{name} = {not value}", {**made, name: not value}
        elif name in ("attention_multiplier", "query_pre_attn_scalar", "clip_qkv"):
            yield f"{name} = 2", {**made, name: 2.0}
    if "head_dim" in made:
        yield "narrow heads", {**made, "head_dim": HEAD}
    if "num_key_value_heads" in made:
        yield "as many keys as queries", {**made, "num_key_value_heads": 4}
    if isinstance(values.get("layer_types"), list):
        yield (
            "layers in the other order",
            {**made, "layer_types": values["layer_types"][::-1]},
        )


def made_of(family, changes):
    """The configuration of a family's text model, and a model."""
    whole = CONFIG_MAPPING[family](**changes)
    config = whole.get_text_config(decoder=True)
    torch.manual_seed(0)
    known = MODEL_FOR_CAUSAL_LM_MAPPING[type(whole)]
    return config, known._from_config(config, attn_implementation="eager").eval()


def build(family, changes):
    """The model, its configuration, and what goes into and out of each attention, by its name."""
    config, model = made_of(family, changes)
    with torch.no_grad():
        for value in model.double().parameters():
            wide = value.ndim > 1
            value.normal_(std=value.shape[-1] ** -0.5) if wide else value.add_(
                torch.randn_like(value) / 5
            )
    try:
        return config, model.state_dict(), watched(model)
    except RuntimeError as error:
        if not re.search("ouble|overflow", str(error)):
            raise
    return config, model.double().state_dict(), watched(model.float())


def watched(model):
    """What goes into each attention of a model and comes out, as one pass over tokens shows it."""
    found, hooks = {}, []

    def keep(name):
        def hook(module, given, named, made):
            x = named.get("hidden_states", named.get("x", given[0] if given else None))
            made = made[0] if isinstance(made, tuple | list) else made
            x = found.get(name, (x.double(),))[0]
            found[name] = x, made.double()

        return hook

    for name, module in model.named_modules():
        attends = re.search(r"Attention$|SelfAttention|Attention2", type(module).__name__)
        dense = getattr(getattr(module, "output", None), "dense", None)
        if (
            hasattr(module, "self") and dense is not None
        ):  # BERT's, whose output comes behind
            hooks.append(module.self.register_forward_hook(keep(name), with_kwargs=True))
            hooks.append(dense.register_forward_hook(keep(name), with_kwargs=True))
        elif attends and re.search(r"\.\d+\.", f"{name}.") and not name.endswith(".self"):
            hooks.append(module.register_forward_hook(keep(name), with_kwargs=True))
    torch.manual_seed(1)
    rows = getattr(model.config, "num_codebooks", 2)
    tokens = torch.randint(2, VOCABULARY, (rows, TOKENS))
    with torch.no_grad():
        model(input_ids=tokens, use_cache=False)
    for hook in hooks:
        hook.remove()
    return found


def proved(family):
    """What shows that words are true: the modules of each kind of layer, and the keys that change a model."""
    row = next(told for names, told in data("told.json").items() if family in names.split())
    made, found = small(family), {"kinds": {}, "sizes": [], "unproved": []}
    values = CONFIG_MAPPING[family](**made).to_dict()
    turned = {k: values[k][::-1] for k in PATTERNS if isinstance(values.get(k), list)}
    for changes in (made, made | turned):
        config, model = made_of(family, changes)
        layers = plan(config.to_dict()).layers
        lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
        stack = next(m for m in lists if len(m) and len(layers) % len(m) == 0)
        for layer, module in zip(layers[:: len(layers) // len(stack)], stack, strict=True):
            mixers = (m for name, m in module.named_modules() if not FEED.search(name))
            names = sorted({type(m).__name__ for m in mixers})
            kind = "attention" if layer.kind in ATTENTION else layer.kind
            if found["kinds"].setdefault(kind, names) != names:
                raise ValueError(f"layer {layer.index}: {kind} has modules {names}")
    if len({str(names) for names in found["kinds"].values()}) < len(found["kinds"]):
        raise ValueError(f"two kinds have the same modules: {found['kinds']}")
    words, usual = set(re.findall(r"\w+", str(row))), traced(family, made)
    keys = sorted(key for key in words if type(values.get(key)) is int)
    for key in keys:
        others = (traced(family, made | {key: n(values[key])}) for n in RESIZED)
        shows = any(other not in (None, usual) for other in others)
        found["sizes" if shows else "unproved"] += [key]
    for one, other in permutations(found["unproved"], 2):  # whose product another key holds
        both = {one: 2 * values[one], other: values[other] // 2}
        found["sizes"] += [one] * (traced(family, made | both) not in (None, usual))
    found["unproved"] = sorted(set(found["unproved"]) - set(found["sizes"]))
    return found


def traced(family, changes):
    """The shapes of a model's weights, and what it makes of tokens; None if there is no such model."""
    try:
        model = made_of(family, changes)[1]
        torch.manual_seed(0)
        with torch.no_grad():
            for value in model.parameters():
                value.normal_(std=value.shape[-1] ** -0.5)
            tokens = torch.arange(2, 2 + TOKENS)[None] % VOCABULARY
            logits = model(input_ids=tokens, use_cache=False).logits
    except Exception:
        return None
    return [tuple(value.shape) for value in model.state_dict().values()], logits.tolist()


def difference(config, weights, seen, family):
    """How far our layers are off, read as a family of ours, and from which token on, in the worst layer."""
    whole, worst, first = plan(config.to_dict() | {"model_type": family}), 0.0, 0
    before = sum(not layer.causal for layer in whole.layers) % len(whole.layers)
    for name, (x, wanted) in seen.items():
        index = int(re.findall(r"\.(\d+)\.", f"{name}.")[-1]) + before
        layer = whole.layers[index]
        if layer.kind not in ATTENTION and family == config.model_type:
            continue
        kind = LatentAttention if layer.latent else MultiHeadAttention
        made = kind.from_config(whole, index, weights=weights, dtype=torch.float64)
        given = (x,) if layer.latent else (x, x, x)
        with torch.no_grad():
            off = (made(*given, causal=layer.causal) - wanted).abs() / wanted.abs().max()
        if off.max() > worst:
            worst, first = (
                float(off.max()),
                int((off > EQUAL).amax((0, 2)).float().argmax()),
            )
    if not any(layer.kind in ATTENTION for layer in whole.layers) or not seen:
        raise ValueError("no attention was seen")
    return worst, first


def refused(error):
    """Why a family of ours is none, in a line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]


def explained(family, known):
    """What is found of one family: those of ours that equal it, and what they make of each change."""
    states, found, reasons, near = [], {}, {}, []
    for label, changes in variations(family):
        try:
            states.append((label, *build(family, changes)))
        except Exception as error:
            if not states:
                return {"built": refused(error)}
    own = states[0][1].model_type
    for name in [own] if own in known else known:
        told = {"equal": [], "refused": []}
        for label, config, weights, seen in states:
            try:
                off, first = difference(config, weights, seen, name)
            except Exception as error:
                told["refused"].append(label)
                reason = refused(error)
            else:
                what = f"{OTHER if first else ALONE} from token {first} on differ"
                reason = "" if off <= EQUAL else f"{label}: off by {off:.1e}, {what}"
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
        shown = near or {"llama", "qwen3", own} & reasons.keys()
        if any(own in names.split() for names in data("told.json")):
            return {"told": proved(family), "unlike": reasons}
        return {"unlike": {name: reasons[name] for name in sorted(shown)}}
    return {"as": best, **found[best[0]]}


def stop(*_):
    """End a family that takes too long."""
    raise Late(f"no answer in {SECONDS} seconds")


def main(names):
    """Look at some families, or at all, and keep what is found."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, stop)
    record = json.loads(FILE.read_text("utf-8"))["families"] if FILE.exists() else {}
    before = {family: told["as"] for family, told in record.items() if "as" in told}
    known = [name for name in FAMILIES if name not in data("same.json")]
    for family in tqdm(names or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)):
        signal.alarm(SECONDS)
        try:
            record[family] = explained(family, known)
        except (Late, Exception) as error:
            record[family] = {"built": refused(error)}
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
    wrong += [
        f"{name} equaled {names[0]}, and now: {record[name]}"
        for name, names in before.items()
        if "as" not in record[name]
    ]
    return "\n".join(wrong) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
