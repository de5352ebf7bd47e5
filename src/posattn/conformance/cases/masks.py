"""Cases of masks, as functions of positions, and of the positions that tokens have."""

import numpy as np

from posattn import reference
from posattn.reference.cases import Cases

PAIRS = {
    "six tokens": (np.arange(6), np.arange(6)),
    "decoding: one query at the end of its keys": (np.array([5]), np.arange(6)),
    "a part of the text: three queries, seven keys": (np.arange(4, 7), np.arange(7)),
    "positions that do not begin at 0": (np.arange(100, 105), np.arange(98, 105)),
    "keys of a ring, out of order": (np.array([9]), np.array([8, 9, 6, 7])),
    "keys of a ring, two queries": (np.array([8, 9]), np.array([8, 9, 6, 7])),
    "positions per example": (
        np.array([[3, 4], [0, 1]]),
        np.array([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]),
    ),
    "left padding: keys per example": (
        np.array([[1, 2], [3, 4]]),
        np.array([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]),
    ),
    "large positions, up to 2**20": (
        np.array([2**20, 2**20 - 3]),
        np.array([0, 2**20 - 4, 2**20 - 3, 2**20 - 2, 2**20]),
    ),
}


def causal(query_positions, key_positions):
    """Whether a key does not stand after the query."""
    return key_positions[..., None, :] <= query_positions[..., :, None]


def causal_mask():
    """The causal mask: True where a query may attend, to its own position and to the past."""
    for name, where in PAIRS.items():
        yield name, where, {}


def window(query_positions, key_positions, *, window):
    """The causal window of so many tokens, the query's own among them."""
    near = reference.Window(window)(query_positions, key_positions)
    return near & causal(query_positions, key_positions)


def window_mask():
    """The causal window of Mistral, Gemma, gpt-oss: `window` tokens, the query's own among them."""
    for name, where in PAIRS.items():
        yield name, where, {"window": 3}
    square = PAIRS["six tokens"]
    yield "a window of one: each token sees itself", square, {"window": 1}
    yield "a window larger than the text", square, {"window": 64}
    yield "a window as long as the text", square, {"window": 6}


def chunk(query_positions, key_positions, *, size):
    """The past within the query's own chunk."""
    near = reference.Chunk(size)(query_positions, key_positions)
    return near & causal(query_positions, key_positions)


def chunk_mask():
    """The chunks of Llama 4: the past within the query's own chunk of `size` positions."""
    for name, where in PAIRS.items():
        yield name, where, {"size": 3}
    yield "a chunk of one: each token sees itself", PAIRS["six tokens"], {"size": 1}
    yield "a chunk larger than the text", PAIRS["six tokens"], {"size": 64}


def prefix(query_positions, key_positions, *, prefix):
    """The past, and the first positions for all."""
    first = key_positions[..., None, :] < prefix
    return first | causal(query_positions, key_positions)


def prefix_mask():
    """The mask of a prefix language model: all see the first `prefix` positions, and the past."""
    for name, where in PAIRS.items():
        yield name, where, {"prefix": 3}
    yield "no prefix: causal", PAIRS["six tokens"], {"prefix": 0}
    yield "all is prefix", PAIRS["six tokens"], {"prefix": 6}


def length_mask():
    """The mask of padding at the end: each example has so many keys, or each query."""
    yield "two examples", (np.array([3, 1]), 4), {}
    yield "an empty and a full one", (np.array([0, 4]), 4), {}
    yield "as many examples as keys", (np.array([3, 1, 2]), 3), {}
    yield "one length per query", (np.array([[1, 2, 3], [0, 4, 2]]), 4), {}


def left_padding(mask):
    """Tokens that count are numbered from 0, and padding has 0."""
    return np.where(mask, np.cumsum(mask, -1) - 1, 0)


def ids_left_padding():
    """Positions of a padded batch: `ids(mask)`, with True for tokens that count; padding has 0."""
    yield (
        "padding at the left",
        (np.array([[False, False, True, True], [True] * 4, [False, True, True, True]]),),
        {},
    )
    yield "padding at the right", (np.array([[True, True, False, False]]),), {}
    yield "padding in the middle", (np.array([[True, False, True, True, False]]),), {}
    yield "nothing but padding", (np.array([[False] * 3, [True] * 3]),), {}


def packing(segment_ids):
    """Tokens are numbered from 0 in each segment."""
    n = segment_ids.shape[-1]
    begins = np.ones(segment_ids.shape, bool)
    begins[..., 1:] = segment_ids[..., 1:] != segment_ids[..., :-1]
    start = np.maximum.accumulate(np.where(begins, np.arange(n), 0), -1)
    return np.arange(n) - start


def ids_packing():
    """Positions of packed texts: `ids(segment_ids)`, where a new number begins a new text."""
    yield "three texts in a row", (np.array([[0, 0, 0, 1, 1, 2]]),), {}
    yield "two rows", (np.array([[0, 0, 1, 1, 1], [4, 4, 4, 4, 7]]),), {}
    yield "one text", (np.array([[3, 3, 3, 3]]),), {}
    yield "texts of one token", (np.array([[0, 1, 2]]),), {}
    yield "numbers that fall, and come back", (np.array([[2, 2, 1, 1, 2, 2]]),), {}


def document_of(positions):
    """The number of each token's document: one begins where positions fall, and at 0."""
    begins = np.zeros(positions.shape, bool)
    begins[..., 1:] = positions[..., 1:] < positions[..., :-1]
    return np.cumsum(begins | (positions == 0), -1)


def documents(positions, *, mask=None):
    """The past of each token's own document, without padding."""
    number, n = document_of(positions), positions.shape[-1]
    seen = (number[..., :, None] == number[..., None, :]) & np.tri(n, dtype=bool)
    return seen if mask is None else seen & mask[..., None, :]


PACKED = {
    "three documents": [[0, 1, 2, 0, 1, 0, 1, 2]],
    "one document": [[0, 1, 2, 3, 4]],
    "documents of one token": [[0, 0, 0, 1, 0]],
    "skipped positions, as in PoSE: no document begins there": [[0, 1, 2, 40, 41, 0, 7, 8]],
    "documents that do not begin at 0: positions fall": [[5, 6, 7, 2, 3, 4, 1]],
    "two rows, which end their documents elsewhere": [
        [0, 1, 2, 0, 1, 2],
        [0, 1, 0, 1, 2, 3],
    ],
    "far positions": [[0, 2**20, 2**20 + 1, 0, 2**20, 3]],
}


def document_mask():
    """Packed rows, `document_mask(positions)`: the past in a document, which begins at 0 or a fall."""
    for name, where in PACKED.items():
        yield name, (np.array(where),), {}
    for name in ("three documents", "two rows, which end their documents elsewhere"):
        where = np.array(PACKED[name])
        yield f"a mask of ones: {name}", (where,), {"mask": where >= 0}
    between = np.array([[0, 0, 0, 1, 2, 0, 0, 1], [0, 1, 2, 0, 0, 0, 1, 2]])
    shown = np.array([[0, 0, 1, 1, 1, 0, 1, 1], [1, 1, 1, 0, 0, 1, 1, 1]], bool)
    yield "padding at the left of each document", (between,), {"mask": shown}
    counted = np.array([[0, 1, 2, 3, 4, 0, 1, 2], [0, 1, 2, 0, 1, 2, 3, 4]])
    yield "the same, with positions that count it", (counted,), {"mask": shown}


def segments(is_image, grids):
    """The parts of a text in their order: numbers of words, and grids of pictures."""
    at, grids = 0, [tuple(map(int, grid)) for grid in grids]
    while at < len(is_image):
        if is_image[at]:
            part = grids.pop(0)
            at += int(np.prod(part))
        else:
            part = int(np.argmax(np.append(is_image[at:], True)))
            at += part
        yield part


def multimodal(is_image, grids):
    """Time, row and column of each token of a text with pictures."""
    return reference.mrope_positions([*segments(is_image, grids)])[0]


def ids_mrope():
    """Time, row and column in a text with pictures: `ids(is_image, grids)`, grids `(t, h, w)` in tokens."""

    def text(*parts):
        return np.concatenate([np.full(n, image) for n, image in parts])

    one, two = np.array([[1, 2, 4]]), np.array([[1, 2, 2], [1, 3, 1]])
    yield "a picture in a text", (text((2, False), (8, True), (3, False)), one), {}
    yield "a picture first", (text((8, True), (2, False)), one), {}
    yield (
        "two pictures, one of them high",
        (text((1, False), (4, True), (2, False), (3, True), (2, False)), two),
        {},
    )
    yield "two pictures without a word between", (text((7, True), (1, False)), two), {}
    frames = np.array([[3, 2, 2]])
    yield "a video of three frames", (text((1, False), (12, True), (2, False)), frames), {}
    yield "no picture", (text((4, False)), np.zeros((0, 3), int)), {}


VASWANI = "Vaswani.Shazeer.Parmar.ea.2017, section 3.2.3"
MASK = {"results": "mask"}
CASES = {
    "causal_mask": Cases(causal, causal_mask, VASWANI, name="causal=True", **MASK),
    "window_mask": Cases(
        window, window_mask, "jiang2023mistral, section 2", name="Window, causal", **MASK
    ),
    "chunk_mask": Cases(
        chunk,
        chunk_mask,
        f"{VASWANI}, in chunks as in Llama 4",
        name="Chunk, causal",
        **MASK,
    ),
    "prefix_mask": Cases(
        prefix,
        prefix_mask,
        "raffel2020exploring, section 3.2.1",
        name="Prefix, which is this formula only",
        **MASK,
    ),
    "length_mask": Cases(reference.length_mask, length_mask, VASWANI, **MASK),
    "document_mask": Cases(
        documents, document_mask, "raffel2020exploring, section 3.1", name="mask", **MASK
    ),
    "ids_left_padding": Cases(
        left_padding, ids_left_padding, "black2022gptneox, as in transformers", name="ids"
    ),
    "ids_packing": Cases(
        packing, ids_packing, "raffel2020exploring, section 3.1", name="ids"
    ),
    "ids_mrope": Cases(
        multimodal, ids_mrope, "wang2024qwen2vl, section 2.1", name="mrope_positions(parts)"
    ),
}
