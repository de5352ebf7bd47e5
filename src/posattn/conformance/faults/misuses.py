"""Definitions used wrongly, a line for each: with other keywords, other positions or another result."""

import numpy as np

from posattn.conformance.faults.content import SCORES
from posattn.conformance.faults.masks import MASKS, WITH_POSITIONS
from posattn.conformance.faults.positions import (
    ADDED,
    BIASES,
    CONTENT,
    DISTANCES,
    ENCODINGS,
    OTHER,
    ROTATED,
)
from posattn.conformance.faults.registry import half_precision, misuse, tokens
from posattn.conformance.faults.scaling import AXES, METHODS
from posattn.reference.position.rotary import to_interleaved

ATTENTION = ("attention", "sinks", "soft_cap")
BUCKETS = ("t5", "t5_bucket")


def without(*names):
    """The other keywords."""
    return lambda given: {name: x for name, x in given.items() if name not in names}


def changed(name, change):
    """One keyword changed, where it is given."""
    return lambda given: {**given, **({name: change(given[name])} if name in given else {})}


def switched(given, by, name, off):
    """One keyword off where another is given."""
    there = given.get(by) is not None and given[by] is not False
    return {**given, name: off} if there else given


def missing(name):
    """Nothing but zeros for an array."""
    return changed(name, lambda x: 0 * x)


def rotary_width(given):
    """How many entries of a latent head rotate."""
    return given["kv_down_weight"].shape[1] - len(given["kv_norm_weight"])


def content_width(given):
    """How many entries of a latent head are content."""
    return given["key_weight"].shape[1] // given["num_heads"]


def first_entries_rotating(given):
    """The query's weight with the entries of each head moved, so that the first ones rotate."""
    weight = given["query_weight"]
    each = weight.reshape(len(weight), given["num_heads"], -1)
    moved = np.roll(each, content_width(given), axis=-1).reshape(weight.shape)
    return {**given, "query_weight": moved}


def counted(positions, first=0):
    """Positions from the first one on."""
    return first + np.arange(positions.shape[-1]) + 0 * positions


# fmt: off
# a name, schemes, what becomes of the keywords, a sentence, and threads
KEYWORDS = (
    ("mask_inverted", ("attention",), changed("mask", lambda x: None if x is None else ~x),
     "The mask is inverted: True hides, where True should mean may attend."),
    ("causal_or_mask", ("attention",), lambda given: switched(given, "mask", "causal", False),
     "A mask switches causal off: both should hold."),
    ("causal_ignored", ATTENTION, without("causal"), "Causal is ignored: the future is seen."),
    ("scale_ignored", (*ATTENTION, "window_attention", "image_window_attention"), without("scale"),
     "The scale is ignored: it is one over the square root of the width, whatever was asked."),
    ("bias_or_causal", ("attention",), lambda given: switched(given, "causal", "bias", None),
     "Causal switches the bias off: both should hold."),
    ("bias_or_mask", ("attention",), lambda given: switched(given, "mask", "bias", None),
     "A mask switches the bias off: both should hold."),
    ("bias_ignored", ATTENTION, without("bias"), "The bias is ignored."),
    ("not_scaled", ("attention",), lambda given: {"scale": 1.0, **given},
     "The scores are not divided by the square root of the width."),
    ("sinks_ignored", ("sinks",), without("sinks"),
     "The sinks are ignored: weights sum to 1, as those of a kernel that knows no sinks."),
    ("sinks_of_one", ("sinks",), missing("sinks"),
     "Each sum grows by 1, whatever the sinks: the exponential of 0, and not that of the sink."),
    ("sinks_of_the_first_head", ("sinks",), changed("sinks", lambda x: np.full_like(x, x[0])),
     "The first sink is that of all heads."),
    ("sinks_counted_twice", ("sinks",), changed("sinks", lambda x: x + np.log(2)),
     "Sinks are counted twice, as where keys are split and each part has them: once is right."),
    ("sinks_to_the_base_of_two", ("sinks",), changed("sinks", lambda x: x * np.log(2)),
     "Sinks are exponents of 2: a kernel that computes powers of 2 must convert sinks like scores."),
    ("soft_cap_ignored", ("soft_cap",), without("soft_cap"),
     "The soft cap is ignored, as by a kernel that knows none."),
    ("attention_factor_ignored", ("rotary", "inverse_rotation"), without("attention_factor"),
     "The attention factor is ignored."),
    ("attention_factor_divided", ("inverse_rotation",),
     lambda given: {**given, "attention_factor": 1 / given.get("attention_factor", 1.0)},
     "The attention factor is divided out, as by the inverse matrix: only the angle should be undone."),
    ("base_ignored", (*ENCODINGS, "positional_encoding", *ROTATED, "rotary_scores", "sandwich",
                      "transformer_xl"), without("base"),
     "The base is ignored: it is 10000, whatever was asked."),
    ("base_ignored", (*METHODS, *AXES), without("base"),
     "The base is ignored: it is the default, whatever was asked."),
    ("scale_base_missing", ("xpos_query", "xpos_key"), lambda given: {**given, "scale_base": 1.0},
     "The scale base is 1, as in the paper's algorithm: numbers overflow after some hundred positions."),
    ("rows_and_columns_exchanged", ("mixed_rotary",), changed("frequencies", lambda x: x[::-1]),
     "Rows and columns are exchanged."),
    ("rest_always_turned", ("fope",), without("rest_sine"),
     "The pairs without waves have a sine of 1, as in the authors' code, also where 0 is asked for.",
     "vllm-project/vllm #55204"),
    ("rest_turned_or_not", ("fope",), lambda given: {**given, "rest_sine": 1.0 - given.get("rest_sine", 1.0)},
     "The pairs without waves have the other sine: 1 is the authors', and 0 leaves them as they are."),
    ("first_head_for_all", ("fope",),
     lambda given: {**given, **{name: given[name][:1] for name in ("cos_weight", "sin_weight")}},
     "The waves of the first head serve all heads: each set belongs to its own heads.",
     "vllm-project/vllm #55243"),
    ("one_wave_for_each_pair", ("fope",),
     lambda given: {**given, **dict.fromkeys(("cos_weight", "sin_weight"),
                                             np.eye(*given["cos_weight"].shape[1:])[None])},
     "The weights are ignored: each pair rotates with its own frequency only."),
    ("cosine_weights_for_both", ("fope",), lambda given: {**given, "sin_weight": given["cos_weight"]},
     "Sines are weighted as cosines are: they have weights of their own."),
    ("threshold_ignored", ("fire",), changed("multiplier", lambda x: 1e-12 * x),
     "The threshold is ignored: the divisor is that of the query's own position."),
    ("trained_window_ignored", ("swin_v2",), without("trained_height", "trained_width"),
     "The window in training is ignored: displacements are divided by the sides of the one at hand."),
    ("coordinates_in_the_order_x_y", ("swin_v2",), changed("hidden_weight", lambda x: x[::-1]),
     "The network reads the columns first: its first input is the row."),
    ("sides_share_rows", ("shaw",),
     changed("key_table", lambda x: np.concatenate([x[: len(x) // 2 : -1], x[len(x) // 2 :]])),
     "The table cannot tell left from right: a row is looked up by the distance, without its sign."),
    ("table_reversed", ("music_transformer",), changed("table", lambda x: np.flip(x, axis=-2)),
     "The table is read from its other end."),
    ("all_sines_first", ("transformer_xl",), changed("weight", lambda x: to_interleaved(x.T).T),
     "The sinusoids have all sines first, as in the authors' code: reorder the rows of the weight."),
    ("content_bias_missing", ("transformer_xl",), missing("content_bias"),
     "The term of the content bias, u, is missing."),
    ("position_bias_missing", ("transformer_xl",), missing("position_bias"),
     "The term of the position bias, v, is missing."),
    ("same_distance_in_both", ("disentangled",), lambda given: {**given, "same_row": True},
     "Position to content reads the row of i - j: the paper's equation has j - i, the authors' code this.",
     "microsoft/DeBERTa #162"),
    ("buckets_ignored", ("disentangled",), without("bucketed_to"),
     "The buckets are ignored: each distance has a row of its own."),
    ("position_to_content_missing", ("disentangled",), missing("query_weight"),
     "The term position to content is missing."),
    ("buckets_end_one_later", ("deberta_bucket",),
     lambda given: {**given, "max_distance": 1 + given.get("max_distance", 512)},
     "The last bucket ends at the largest distance: it should end one before it."),
    ("reset_missing", ("tupe",), without("cls_bias"), "The scores of [CLS] are not reset."),
    ("bias_before_the_scores", ("dape",),
     changed("hidden_weight", lambda x: np.roll(x, len(x) // 2, axis=0)),
     "The network reads the biases of all heads before their scores: they come after."),
    ("offset_missing", ("forgetting_gate",), missing("offset"), "The offset is missing."),
    ("always_bidirectional", BUCKETS, without("bidirectional"),
     "The option `bidirectional` is ignored: it is True, whatever was asked."),
    ("never_bidirectional", BUCKETS, lambda given: {**given, "bidirectional": False},
     "The option `bidirectional` is ignored: it is False, whatever was asked."),
    ("maximum_ignored", BUCKETS, without("max_distance"),
     "The option `max_distance` is ignored: it is 128, whatever was asked."),
    ("factor_ignored", ("dynamic_ntk",), lambda given: {**given, "factor": 1.0},
     "The factor is ignored: the base grows with length / trained length, as in the paper."),
    ("not_dynamic", ("dynamic_ntk",),
     lambda given: {**given, "length": int(given["trained_length"] * given["factor"])},
     "It is not dynamic: the base is that of a text of the trained length times the factor.",
     "vllm-project/vllm #5093"),
    ("ends_not_rounded", ("yarn",), lambda given: {**given, "truncate": False},
     "The ends of the ramp are not rounded to whole pairs.", "keras-team/keras-hub #2981"),
    ("truncate_ignored", ("yarn",), without("truncate"),
     "The ends of the ramp are rounded to whole pairs, whatever was asked."),
    ("weights_ignored", ("yarn",), without("mscale", "mscale_all_dim"),
     "The weights of the logarithm, mscale and mscale_all_dim, are ignored.",
     "sgl-project/sglang #31232, vllm-project/vllm #48623"),
    ("short_factors_ignored", ("longrope",),
     lambda given: {**given, "length": max(given["length"], given["trained_length"] + 1)},
     "The short factors are ignored: the long ones hold for every text.", "lablup/mlxcel #1358"),
    ("long_factors_ignored", ("longrope",),
     lambda given: {**given, "length": min(given["length"], given["trained_length"])},
     "The long factors are ignored: the short ones hold for every text."),
    ("factors_multiplied", ("longrope",),
     lambda given: {**given, **{name: 1 / given[name] for name in ("short_factors", "long_factors")}},
     "The frequencies are multiplied by the factors: they should be divided."),
    ("factors_exchanged", ("longrope",),
     lambda given: {**given, "short_factors": given["long_factors"], "long_factors": given["short_factors"]},
     "Short and long factors are exchanged."),
    ("long_too_early", ("longrope",), changed("length", lambda n: n + 1),
     "The long factors begin at the trained length: they should begin beyond it.",
     "unslothai/unsloth #10681"),
    ("ends_of_llama_31", ("llama3",), without("low_frequency_factor", "high_frequency_factor"),
     "The ends are those of Llama 3.1, 1 and 4 circles, whatever was asked."),
    ("length_of_llama_31", ("llama3",), without("trained_length"),
     "The trained length is that of Llama 3.1, 8192, whatever was asked."),
    ("factor_of_llama_31", ("llama3",), without("factor"),
     "The factor is that of Llama 3.1, 8, whatever was asked."),
    ("latent_in_the_other_layout", ("latent",),
     lambda given: {**given, "layout": OTHER[given.get("layout", "interleaved")]},
     "The other layout: halves of the entries that rotate are paired, not neighbors, or the reverse."),
    ("latent_scaled_by_content", ("latent",), lambda given: {"scale": content_width(given) ** -0.5, **given},
     "Scores are divided by the root of the content's width: the entries that rotate are not counted."),
    ("latent_scaled_by_rank", ("latent",),
     lambda given: {"scale": given["kv_down_weight"].shape[1] ** -0.5, **given},
     "Scores are divided by the root of the latent width, as a kernel with absorbed weights sees it.",
     "ollama/ollama #13893"),
    ("latent_scaled_by_turning", ("latent",), lambda given: {"scale": rotary_width(given) ** -0.5, **given},
     "Scores are divided by the root of the number of entries that rotate: content counts too."),
    ("latent_frequencies_of_the_head", ("latent",),
     lambda given: {**given, "base": given.get("base", 1e4)
                    ** (rotary_width(given) / (given["query_weight"].shape[1] // given["num_heads"]))},
     "Frequencies are those of the whole head: they should be of the entries that rotate."),
    ("latent_shared_key_first", ("latent",),
     lambda given: {**given, "kv_down_weight": np.roll(given["kv_down_weight"], -rotary_width(given), -1)},
     "The shared key is taken from the first entries, before the latent vector: it is the last."),
    ("latent_epsilon_ignored", ("latent",), without("eps"), "The given epsilon of the norms is ignored."),
    ("latent_scale_ignored", ("latent",), without("scale"),
     "The given scale is ignored, and with it YaRN's sharpening in DeepSeek."),
    ("latent_turns_first", ("latent",), first_entries_rotating,
     "The first entries of a query rotate, not the last."),
    ("latent_norms_without_weight", ("latent",),
     lambda given: {**given, **{name: 0 * x + 1 for name, x in given.items() if "norm" in name}},
     "The learned factors of the norms are ignored."),
    ("other_layout", (*ROTATED, "axial", "mixed_rotary", "rotary_scores"),
     lambda given: {**given, "layout": OTHER[given.get("layout", "interleaved")]},
     "The other layout: (x[j], x[j + m]) are the pairs where (x[2j], x[2j+1]) should be, or vice versa.",
     "huggingface/transformers #25199, #33826, Dao-AILab/flash-attention #288"),
    ("window_one_too_large", ("window_mask", "window_attention"), changed("window", lambda n: n + 1),
     "The window is one too large: it holds so many tokens before the query's own, and that one.",
     "NVIDIA-NeMo/Megatron-Bridge #2656"),
    ("shift_ignored", ("image_window_attention",), without("shift"), "The windows are not shifted."),
    ("shifted_the_other_way", ("image_window_attention",), changed("shift", lambda n: -n),
     "The windows are shifted up and left: they should be shifted down and right."),
    ("prefix_one_too_large", ("prefix_mask",), changed("prefix", lambda n: n + 1),
     "The prefix is one too large."),
)
# what becomes of the positions of queries and keys
PLACES = (
    ("queries_from_zero", (*BIASES, *CONTENT, "rotary_scores"), lambda i, j: (i - np.min(i), j),
     "Queries are counted from 0: with cached keys they should stand at the end of them."),
    ("offset_of_the_first", ("rotary_scores",),
     lambda *both: (x[..., :1] + np.arange(x.shape[-1]) for x in both),
     "Only the first position counts, as an offset: the others are counted on from it.",
     "GroupQueryAttention of onnxruntime 1.32.0"),
    ("bias_from_the_start", BIASES, lambda i, j: (counted(i), counted(j)),
     "Queries and keys are counted from 0: with cached keys, queries should stand at the end of them."),
    ("aligned_to_the_start", WITH_POSITIONS, lambda i, j: (counted(i), counted(j)),
     "Queries are aligned to the start: the first one stands at the first key, whatever the positions.",
     "NVIDIA-NeMo/Megatron-Bridge #5259, onnx/onnx #8068, pytorch/executorch #21749"),
    ("bias_without_positions", BIASES, lambda i, j: (counted(i, j.shape[-1] - i.shape[-1]), counted(j)),
     "The positions are ignored: keys are counted from 0, and queries are aligned to their end."),
    ("aligned_to_the_end", WITH_POSITIONS, lambda i, j: (counted(i, j.shape[-1] - i.shape[-1]), counted(j)),
     "The positions are ignored: the last query stands at the last key, and keys are in order."),
    ("first_keys_for_all", WITH_POSITIONS,
     lambda i, j: (i, np.broadcast_to(j[(0,) * (j.ndim - 1)], j.shape)),
     "The first example's keys are taken for those of all: left padding moves them apart."),
    ("sign_of_the_offset", SCORES, lambda i, j: (-i, -j),
     "The wrong sign: offsets are counted from the key to the query, or vice versa."),
    ("one_more_key", ("length_mask",), lambda lengths, n_k: (np.minimum(lengths + 1, n_k), n_k),
     "One key too many is seen."),
    ("distance_unbounded", ("fire",), lambda i, j: (i - np.max(i), j - np.max(i)),
     "The divisor ignores the position of the query: it is that of the threshold."),
    ("distances_in_bfloat16", DISTANCES, lambda i, j: map(half_precision("bfloat16"), (i, j)),
     "Low-precision positions: they are bfloat16, which has no 257."),
    ("distances_in_float16", DISTANCES, lambda i, j: map(half_precision("float16"), (i, j)),
     "Low-precision positions: they are float16, which has no 2049."),
)
# what becomes of the positions of tokens, beside these
ROWS = (
    ("positions_ignored", (*ADDED, *ROTATED, "mixed_rotary"), lambda where, x: tokens(x, None),
     "The positions are ignored: tokens are counted from 0, so offsets and left padding are wrong.",
     "huggingface/transformers #22161"),
    ("positions_of_the_first", (*ADDED, *ROTATED),
     lambda where, x: np.broadcast_to(where[(slice(1),) * (where.ndim - 1)], where.shape),
     "The first example's positions are used for all: left padding and packing are wrong."),
    ("one_ahead_in_decoding", (*ADDED, *ROTATED), lambda where, x: where + (x.shape[-2] == 1),
     "A single token stands one position too far, as where the new token is counted before it.",
     "huggingface/optimum-neuron #848"),
    ("counted_anew_in_decoding", (*ADDED, *ROTATED), lambda where, x: where * (where.shape[-1] != 1),
     "Positions begin anew in decoding: a single token is taken to stand at 0."),
    ("offset_of_the_first", (*ADDED, *ROTATED), lambda where, x: where[..., :1] + np.arange(x.shape[-2]),
     "Only the first position counts, as an offset: the others are counted on from it."),
    ("latent_positions_ignored", ("latent",), lambda where, x: tokens(x, None),
     "Given positions are ignored: tokens stand at 0, 1, and so on."),
    ("counted_from_one", ("positional_encoding", *ROTATED), lambda where, x: where + 1,
     "Positions are counted from 1."),
)
# what becomes of the result, beside the arguments
RESULTS = (
    ("bias_subtracted", (*BIASES, *CONTENT), lambda made, *_: -made,
     "The wrong sign: what should be added is subtracted."),
    ("bias_not_in_decoding", BIASES, lambda made, *_: made * (made.shape[-2] > 1),
     "The bias is dropped where there is one query: with a cache it belongs to each new token too."),
    ("first_example_only_in_decoding", ("rotary", *ROTATED[2:]), lambda made, x, *_:
     made if x.ndim < 3 or x.shape[-2] > 1 else np.concatenate([made[:1], 0 * made[1:]]),
     "Where there is one token, only the first example is written: the others are zeros.",
     "ml-explore/mlx #3494, #3795, #3949"),
    ("input_scaled", ("positional_encoding", "learned"),
     lambda made, x, *_: made + (np.sqrt(x.shape[-1]) - 1) * x,
     "The input is multiplied by the square root of its width, which is the embedding's business."),
    ("input_missing", ("positional_encoding", "learned"), lambda made, x, *_: made - x,
     "The encoding alone comes back: the input is not added."),
    ("sigmoid_missing", ("swin_v2",), lambda made, *_: -np.log(16 / made - 1),
     "The output of the network is added as it is: the authors' code has 16 times its sigmoid."),
    ("not_scaled", SCORES, lambda made, query, *_: made * query.shape[-1] ** 0.5,
     "The term is not divided by the square root of the width of a head."),
    ("scaled_as_one_term", ("disentangled",), lambda made, *_: made * 3**0.5,
     "The scale is that of one term, 1 / sqrt(d_h): three terms need 1 / sqrt(3 d_h)."),
    ("key_after_itself", ("stick_breaking",),
     lambda made, query, key, *_: made + query @ key.mT / query.shape[-1] ** 0.5,
     "The product begins with the key itself left out of the score: it is ln of the weight, not a bias."),
    ("bias_not_added", ("dape",), lambda made, query, key, bias: made - bias,
     "The network's output is all that is added: the bias that it reads is missing."),
    ("logarithm_missing", ("forgetting_gate",), lambda made, *_: np.exp(made),
     "The gates come back, and not their logarithms."),
    ("buckets_without_sign", ("deberta_bucket",), lambda made, *_: np.abs(made),
     "Both directions share their buckets: the sign is missing."),
    ("attention_factor_missing", ("yarn", "longrope"), lambda made, *_: (made[0], 1.0),
     "The attention factor is missing: it is 1."),
    ("attention_factor_one_over", ("yarn",), lambda made, *_: (made[0], 1 / made[1]),
     "The attention factor is inverted: scores should grow, not shrink."),
    ("attention_factor_squared", ("yarn", "longrope"), lambda made, *_: (made[0], made[1] ** 2),
     "The attention factor is squared: that is what it does to the scores, not to queries and keys."),
    ("wavelengths", METHODS,
     lambda made, *_: (1 / made[0], made[1]) if isinstance(made, tuple) else 1 / made,
     "What comes back is one over the frequencies."),
    ("sine_and_cosine_in_turn", ("polar_query", "polar_key"),
     lambda made, *_: np.stack(np.split(made, 2, axis=-1), axis=-1).reshape(made.shape),
     "Sines and cosines alternate: here all cosines come first; scores are the same."),
    ("remainder_to_nothing", ("stick_breaking",), lambda made, query, key, i, j: np.where(
        (j[..., None, :] == i[..., None])[..., None, :, :], -np.inf, made),
     "The query's own key has no weight, as in the paper: here it has what remains."),
    ("true_hides", MASKS, lambda made, *_: ~made,
     "The mask is inverted: True hides, where True should mean may attend."),
    ("zeros_and_ones_added", MASKS, lambda made, *_: np.ones_like(made),
     "The mask is 0 and 1 as numbers, which hide nothing when they are added to scores."),
    ("heads_come_back_in_other_order", ("sinks",), lambda made, query, key, *_: np.swapaxes(
        made.reshape(*made.shape[:-3], -1, key.shape[-3], *made.shape[-2:]), -4, -3).reshape(made.shape),
     "Heads come back in another order: those that share keys are neighbors.", "nntile/nntile #347"),
    ("lost_with_a_cache", ("forgetting",), lambda made, *_: made * (made.shape[-2] == made.shape[-1]),
     "With cached keys nothing is forgotten: the gates of tokens in the cache are not kept."),
    ("own_position_hidden", WITH_POSITIONS,
     lambda made, i, j: made & (j[..., None, :] != i[..., :, None]),
     "A query does not see its own position."),
    ("padding_at_the_left", ("length_mask",), lambda made, *_: made[..., ::-1],
     "The padding is at the left: here the first keys count."),
    ("nothing_converted", ("to_half", "to_interleaved"), lambda made, x: x, "Nothing is converted."),
)
# fmt: on


def with_keywords(definition, change, arguments, keywords):
    """A definition called with other keywords."""
    return definition(*arguments, **change(keywords))


def at_places(definition, change, arguments, keywords):
    """A definition called with other positions, which come last."""
    *heads, queries, keys = arguments
    return definition(*heads, *change(queries, keys), **keywords)


def at_rows(definition, change, arguments, keywords):
    """A definition called with other positions of tokens, counted from 0 if there are none."""
    x, positions = (*arguments, None)[:2]
    return definition(x, change(tokens(x, positions), x), **keywords)


def with_result(definition, change, arguments, keywords):
    """What a definition returns, changed."""
    return change(definition(*arguments, **keywords), *arguments)


def enter(call, name, schemes, change, sentence, seen=""):
    """Enter a row: the definitions of some schemes, called so."""

    def uses(definition, *arguments, **keywords):
        return call(definition, change, arguments, keywords)

    uses.__name__, uses.__doc__ = name, sentence
    misuse(*schemes, seen=seen)(uses)


for rows, call in (
    (KEYWORDS, with_keywords),
    (PLACES, at_places),
    (ROWS, at_rows),
    (RESULTS, with_result),
):
    for row in rows:
        enter(call, *row)
