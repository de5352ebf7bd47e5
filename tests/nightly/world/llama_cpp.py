"""llama.cpp: a small GGUF file, run by arguments of the command line."""

import ctypes
import os
import shlex
import signal
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import xllamacpp

from tests.nightly.world.inside import recipe

INSTALL = ["numpy==2.4.6", "gguf==0.19.0", "xllamacpp==2026.10.11549"]

C = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
C.llama_log_set(QUIET := LOG(lambda *_: None), None)
SERVER, DEBUG, TOKENIZE = 12, 1, 25  # whose arguments are parsed
YARN = "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 64"


def _flags(flags, program=SERVER):
    """What llama.cpp's parser of arguments makes of these."""
    params = xllamacpp.CommonParams()
    words = [b"llama", *map(str.encode, shlex.split(flags))]
    parse = C._Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E
    array = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    done = parse(len(words), array, ctypes.c_void_p(id(params) + 16), program, None)
    if not done & 255:
        raise ValueError(f"llama.cpp refuses {flags!r}")
    return params


KEYS = {
    "context_length": 64, "embedding_length": 64, "block_count": 1, "feed_forward_length": 64,
    "attention.head_count": 1, "attention.layer_norm_rms_epsilon": 1e-6, "vocab_size": 32,
}  # fmt: skip
MATRICES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]


def _gguf(arch="llama", tensors=(), **keys):
    """A random GGUF file with one layer and one head of 64, and queries and keys larger than usual."""
    path, rng, one = tempfile.mktemp(suffix=".gguf"), np.random.default_rng(0), np.ones(64)
    writer = gguf.GGUFWriter(path, arch)
    for key, value in (KEYS | keys).items():
        add = {int: "uint32", float: "float32", str: "string"}[type(value)]
        getattr(writer, f"add_{add}")(f"{arch}.{key}".replace("__", "."), value)
    writer.add_tokenizer_model("none")
    ends = "token_embd", "output"
    made = {f"{name}.weight": rng.normal(size=(32, 64)) / 8 for name in ends}
    for name in MATRICES:
        size = 8**0.5 if name in ("attn_q", "attn_k") else 1
        made[f"blk.0.{name}.weight"] = size * rng.normal(size=(64, 64)) / 8
    made |= {f"{n}_norm.weight": one for n in ("output", "blk.0.attn", "blk.0.ffn")}
    made |= {f"blk.0.attn_{name}.bias": 0 * one for name in "qkv" if arch == "qwen2"}
    if arch == "gemma":  # ties its output to its embedding
        del made["output.weight"]
    for name, array in (made | dict(tensors)).items():
        writer.add_tensor(name, np.float32(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class _Batch(ctypes.Structure):
    _names = ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")
    _fields_ = [("n_tokens", ctypes.c_int32), *((name, ctypes.c_void_p) for name in _names)]


class _Run:
    """A model and its context, made by the arguments of a command line."""

    def __init__(self, path, flags=""):
        fixed = "--no-warmup --fit off -fa off -ctk f32 -ctv f32 -t 1 --parallel 1"
        self.params, self.made = _flags(f"-m {path} {fixed} {flags}"), ctypes.c_void_p()
        make, place = C._Z23common_init_from_paramsR13common_paramsb, id(self.params) + 16
        make(ctypes.byref(self.made), ctypes.c_void_p(place), False)
        C._ZN18common_init_result7contextEv.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(C._ZN18common_init_result7contextEv(self.made))
        C.llama_get_memory.restype = ctypes.c_void_p
        self.memory = ctypes.c_void_p(C.llama_get_memory(self.context))

    def read(self, tokens, start=0, sequences=None, width=32):
        """The logits of these tokens."""
        n, at = len(tokens), ctypes.addressof
        positions = range(start, start + n) if sequences is None else start
        ids, pos, each, one = (
            (ctypes.c_int32 * n)(*numbers)
            for numbers in (tokens, positions, sequences or [0] * n, [1] * n)
        )
        rows = (ctypes.c_void_p * n)(*(at(each) + 4 * i for i in range(n)))
        wanted = (ctypes.c_int8 * n)(*[1] * n)
        batch = _Batch(n, at(ids), None, at(pos), at(one), at(rows), at(wanted))
        if C.llama_decode(self.context, batch):
            raise ValueError("llama_decode failed")
        return self.floats("llama_get_logits_ith", range(n), width)

    def floats(self, name, which, width):
        """Rows that a function of llama.cpp gives."""
        function = getattr(C, name)
        function.restype = ctypes.POINTER(ctypes.c_float * width)
        return np.array([function(self.context, i).contents for i in which])

    def state(self):
        """Sequence 0 as bytes."""
        size = C.llama_state_seq_get_size(self.context, 0)
        saved = ctypes.create_string_buffer(size)
        C.llama_state_seq_get_data(self.context, saved, ctypes.c_size_t(size), 0)
        return saved

    def keys(self, neighbors=True):
        """The cached keys of sequence 0, a complex number for each pair."""
        saved = self.state().raw
        cells = int.from_bytes(saved[12:16], "little")
        start = saved.index(struct.pack("<iQ", 0, 256), 16 + 12 * cells) + 12
        keys = np.frombuffer(saved[start:][: 256 * cells], "<f4").reshape(cells, 64)
        pairs = (keys[:, ::2], keys[:, 1::2]) if neighbors else np.split(keys, 2, 1)
        return pairs[0].astype(float) + 1j * pairs[1]


def _rotation(path, flags="", neighbors=True):
    """By how many radians each pair turns per position, and how long its key is."""
    run = _Run(path, flags)
    run.read([3] * 64)
    keys = run.keys(neighbors)
    angles = np.unwrap(np.angle(keys), axis=0)
    return (angles[-1] - angles[0]) / 63, abs(keys[0])


def packed(documents):
    tokens, batch = [*range(6)], _Run(_gguf(), "-c 512 --parallel 2")
    together = batch.read(tokens, [0, 1, 2] * 2, documents[0].tolist())
    return _Run(_gguf()).read(tokens[3:]), together[3:]


def cached():
    whole, steps = _Run(_gguf()), _Run(_gguf())
    return whole.read(range(8))[5:], [steps.read(range(5)), steps.read(range(5, 8), 5)][1]


def flags_that_lengthen():
    """llama.cpp takes YaRN's numbers on its command line, where they override those of the file."""
    params = _flags(recipe("build/extending", "llama-server").split(maxsplit=1)[1])
    print(f"context {params.n_ctx}, factor {1 / params.rope_freq_scale}")
    (plain, size), (slowed, longer) = (_rotation(_gguf(), flags) for flags in ("", YARN))
    print("frequencies, fastest and slowest:", (slowed / plain)[[0, -1]].round(3))
    print("keys:", (longer / size)[[0, -1]].round(3))
    told = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    told |= {"rope__scaling__original_context_length": 64}
    halved, _ = _rotation(_gguf(**told), "--rope-scale 2")
    print("a file with factor 4, and --rope-scale 2:", (halved / plain)[[0, -1]].round(3))


def keys():
    """`gguf-dump` prints all keys and tensors, and these keys hold the base and the scaling."""
    told = {"rope__freq_base": 20000.0, "rope__scaling__type": "linear"}
    path, (plain, _) = _gguf(**told, rope__scaling__factor=4.0), _rotation(_gguf())
    program = os.path.join(os.path.dirname(sys.executable), "gguf-dump")
    done = subprocess.run([program, path], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    print(*(line for line in lines if "rope" in line or "attn_q" in line), sep="\n")
    print("rates, fastest and slowest:", (_rotation(path)[0] / plain)[[0, -1]].round(3))


def flags_that_dump():
    """The three lines of this page pass llama.cpp's own parser of arguments."""
    lines = recipe("fix/llama_cpp", "llama-debug").strip().splitlines()
    for line, program in zip(lines, (TOKENIZE, DEBUG, DEBUG), strict=True):
        name, flags = line.split(maxsplit=1)
        told = _flags(flags, program)
        print(name, told.tokenize_ids, told.save_logits, list(told.tensor_filter))


def larger_context():
    """`--ctx-size` beyond the trained length scales nothing."""
    (plain, _), (longer, _) = _rotation(_gguf()), _rotation(_gguf(), "--ctx-size 1024")
    print("largest change of a frequency:", abs(longer / plain - 1).max().round(6))


def divided():
    """`--parallel` divides `--ctx-size` among its sequences, unless `--kv-unified` is given."""
    for flags in ("", "--parallel 4", "--parallel 4 --kv-unified"):
        run = _Run(_gguf(), f"--ctx-size 4096 {flags}")
        print(flags or "one sequence", C.llama_n_ctx_seq(run.context))


def rope_freqs():
    """A tensor `rope_freqs.weight` divides the frequencies, with no key beside it."""
    wave = 2 * np.pi * 10000 ** (np.arange(32) / 32)
    part = np.clip((64 / wave - 1) / 3, 0, 1)
    divisors = {"rope_freqs.weight": 1 / ((1 - part) / 8 + part)}
    (plain, _), (scaled, _) = _rotation(_gguf()), _rotation(_gguf(tensors=divisors))
    print("frequencies, fastest and slowest:", (scaled / plain)[[0, -1]].round(3))


def unknown_type():
    """A `rope.scaling.type` of `llama3` or `dynamic` ends the process."""
    for kind in ("llama3", "dynamic"):
        if not (child := os.fork()):
            os.environ["GGML_NO_BACKTRACE"] = "1"
            _Run(_gguf(rope__scaling__type=kind, rope__scaling__factor=8.0))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(kind, signal.Signals(-status).name)


def layouts():
    """Files of architecture `llama` rotate neighbors, those of `qwen2` halves."""
    for arch in ("llama", "qwen2"):
        for name, neighbors in (("neighbors", True), ("halves", False)):
            rates, _ = _rotation(_gguf(arch), "", neighbors)
            print(arch, name, np.allclose(rates, 10000 ** (-np.arange(32) / 32), atol=1e-5))


def norm_weight():
    """A file of architecture `gemma` holds the weight of a norm with its 1 already added."""
    keys = {"attention__key_length": 64, "attention__value_length": 64}
    sizes = [
        np.linalg.norm(_rotation(path)[1]) for path in (_gguf("gemma", **keys), _gguf())
    ]
    print("keys for a stored weight of 1, against Llama's:", (sizes[0] / sizes[1]).round(3))


def context_shift():
    """`ctx_shift` is off unless `--context-shift` is given."""
    print(_flags("-m x.gguf").ctx_shift, _flags("-m x.gguf --context-shift").ctx_shift)


def shifted_keys():
    """With YaRN, each context shift multiplies every cached key by 1 + 0.1 ln *s*, moved or not."""
    for name, flags in (("plain", ""), ("YaRN", YARN)):
        run = _Run(_gguf(), f"-c 256 {flags}")
        run.read([3] * 40)
        before = abs(run.keys()[0])
        for shift in range(10):
            C.llama_memory_seq_rm(run.memory, 0, 4, 5)
            C.llama_memory_seq_add(run.memory, 0, 5, -1, -1)
            run.read([3], 39)
            if shift in (0, 9):
                print(
                    f"{name}, shift {shift + 1}:", (abs(run.keys()[0]) / before)[0].round(3)
                )


def saved_after_a_shift():
    """A sequence saved between a shift and the next decode keeps the old angles."""
    for case in ("after a decode", "at once"):
        run, other = _Run(_gguf(), "-c 256"), _Run(_gguf(), "-c 256")
        run.read(range(20))
        C.llama_memory_seq_rm(run.memory, 0, 4, 12)
        C.llama_memory_seq_add(run.memory, 0, 12, -1, -8)
        if case == "after a decode":
            run.read([20], 12)
            C.llama_memory_seq_rm(run.memory, 0, 12, -1)
        saved = run.state()
        C.llama_state_seq_set_data(other.context, saved, ctypes.c_size_t(len(saved)), 0)
        change = abs(other.read([20], 12) - run.read([20], 12)).max()
        print(f"saved {case}, a logit changes by", change.round(2))


def attention_factor():
    """`--yarn-attn-factor` changes nothing with YaRN, and multiplies all queries and keys without it."""
    _, plain = _rotation(_gguf())
    for flags in (YARN, f"{YARN} --yarn-attn-factor 2", "--yarn-attn-factor 2"):
        print(flags, (_rotation(_gguf(), f"-c 256 {flags}")[1] / plain)[0].round(3))


def keys_of_yarn():
    """YaRN's betas and attention factor in a Llama file change nothing; the flags for the betas do."""
    told = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    told |= {"rope__scaling__original_context_length": 64}
    more = {"rope__scaling__yarn_attn_factor": 1.0, "rope__scaling__yarn_beta_fast": 4.0}
    (rates, size), flags = _rotation(_gguf(**told)), "--yarn-beta-fast 4"
    keyed, flagged = _rotation(_gguf(**told, **more)), _rotation(_gguf(**told), flags)
    for name, (changed, longer) in {"keys": keyed, "flag": flagged}.items():
        print(name, abs(changed / rates - 1).max().round(3), (longer / size)[0].round(3))


def rounded_ramp():
    """YaRN's ramp is always rounded: with gpt-oss's numbers, pair 17 rotates 1.76 times too fast."""
    pairs, base = np.arange(32), 150000.0
    low, high = (
        32 * np.log(4096 / (2 * np.pi * turns)) / np.log(base) for turns in (32, 1)
    )
    part = np.clip((pairs - low) / (high - low), 0, 1)
    right = base ** (-pairs / 32) * (1 - part + part / 32)
    flags = "--rope-scaling yarn --rope-scale 32 --yarn-orig-ctx 4096"
    rates, _ = _rotation(_gguf(rope__freq_base=base), flags)
    print("pairs 8 to 18:", (rates / right)[8:19].round(2))


def long_factors():
    """LongRoPE's long factors serve every text once the context per sequence exceeds the trained length."""
    told = {
        "rope__scaling__type": "longrope",
        "rope__scaling__original_context_length": 512,
    }
    short, long = (
        {f"rope_factors_{n}.weight": np.full(32, f)} for n, f in (("short", 1), ("long", 4))
    )
    for flags in ("-c 512", "-c 1024", "-c 1024 --parallel 2"):
        rates, _ = _rotation(_gguf(tensors=short | long, **told), flags)
        print(flags, (rates * 10000 ** (np.arange(32) / 32))[[0, -1]].round(3))


def mean_pooling():
    """Through the library, mean pooling of a causal model averages only the last micro-batch."""
    tokens = [*range(32), *range(8)]
    for pooling, micro in (("none", 64), ("mean", 64), ("mean", 16)):
        run = _Run(_gguf(), f"--pooling {pooling} -ub {micro}")
        C.llama_set_embeddings(run.context, True)
        run.read(tokens)
        if pooling == "none":
            each = run.floats("llama_get_embeddings_ith", range(40), 64)
            continue
        pooled = run.floats("llama_get_embeddings_seq", [0], 64)[0]
        off = [abs(pooled - each[-last:].mean(0)).max() for last in (40, 8)]
        words = (
            f"off the mean of all 40 tokens by {off[0]:.2f}, of the last 8 by {off[1]:.2f}"
        )
        print(f"-ub {micro}: {words}")
