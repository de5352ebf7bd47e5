"""Write the book's decoders as checkpoints of Llama: `python -m tests.nightly.studies.checkpoints`."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from posattn.stories import WORDS
from posattn.torch import weight_to_half
from tests.nightly.studies.cells import Cell, run
from tests.nightly.studies.schemes import HEADS, WIDTH

ROOT = Path(__file__).parents[3]
PLACES = {
    "rotary": ROOT / "src" / "posattn" / "stories",
    "alibi": ROOT / "docs" / "_static" / "decoders" / "alibi",
    "none": ROOT / "docs" / "_static" / "decoders" / "none",
}
SEEDS = {
    "rotary": 1,
    "alibi": 0,
    "none": 0,
}  # of those in the study, one that learned to answer
PARTS = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
}


def as_llama(decoder):
    """The configuration and the arrays of a decoder under the names of Llama, in half precision.

    Llama has no factor on embeddings, so it is multiplied into them and the head is kept apart;
    its pairs are halves of a head, not neighbors.
    """
    table = decoder.embedding.weight
    arrays = {
        "model.embed_tokens.weight": table * decoder.embedding_scale,
        "model.norm.weight": decoder.norm.weight,
        "lm_head.weight": table,
    }
    for index, block in enumerate(decoder.blocks):
        for own, name in PARTS.items():
            weight = block.get_submodule(own).weight
            if own in ("attention.query", "attention.key") and block.attention.rotate:
                weight = weight_to_half(weight, HEADS)
            arrays[f"model.layers.{index}.{name}.weight"] = weight
    config = {
        "model_type": "llama",
        "vocab_size": len(table),
        "hidden_size": WIDTH,
        "intermediate_size": decoder.blocks[0].feed_forward.up.out_features,
        "num_hidden_layers": len(decoder.blocks),
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 48,
        "tie_word_embeddings": False,
    }
    halves = {  # safetensors writes the bytes as they lie, whatever the strides
        name: np.ascontiguousarray(each.detach().numpy(), np.float16)
        for name, each in arrays.items()
    }
    return config, halves


def write(folder, decoder):
    """Write a decoder into a folder, with its words, and as a model of Llama if it is one: if it turns."""
    config, arrays = as_llama(decoder)
    folder.mkdir(parents=True, exist_ok=True)
    if decoder.blocks[0].attention.rotate is not None:
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    save_file(arrays, folder / "model.safetensors", {"words": " ".join(WORDS)})


if __name__ == "__main__":
    for scheme, folder in PLACES.items():
        write(folder, run(Cell("stories", scheme, SEEDS[scheme]))[1])
