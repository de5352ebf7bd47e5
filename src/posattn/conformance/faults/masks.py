"""Faults of masks, and of the positions that tokens have."""

from functools import partial

import numpy as np

from posattn.conformance.cases.masks import (
    causal,
    document_of,
    documents,
    left_padding,
    multimodal,
    packing,
    segments,
)
from posattn.conformance.faults.registry import fault, line, misuse

WITH_POSITIONS = ("causal_mask", "window_mask", "chunk_mask", "prefix_mask")
PADDED, PACKED = "ids_left_padding", "document_mask"
MASKS = (*WITH_POSITIONS, "length_mask", PACKED)


@misuse(*WITH_POSITIONS)
def first_example_for_all(definition, query_positions, key_positions, **keywords):
    """The first example's positions are used for all."""
    one = [
        x[tuple(slice(0, 1) for _ in x.shape[:-1])]
        for x in (query_positions, key_positions)
    ]
    made = definition(*one, **keywords)
    return np.broadcast_to(made, (*query_positions.shape[:-1], *made.shape[-2:]))


@misuse("window_mask", "chunk_mask")
def future_seen(definition, query_positions, key_positions, **keywords):
    """The future is seen: the mask holds on both sides, or within the whole chunk."""
    there = definition(query_positions, key_positions, **keywords)
    back = np.swapaxes(definition(key_positions, query_positions, **keywords), -1, -2)
    return there | back


@misuse("window_mask")
def window_one_too_small(definition, *where, window):
    """The window is one too small: the query's own token is one of those that it holds."""
    return (
        definition(*where, window=max(window - 1, 0))
        if window > 1
        else False & definition(*where, window=1)
    )


@fault("window_mask")
def window_half_as_large(query_positions, key_positions, *, window):
    """Half of the window lies behind: Longformer's window has two sides, and this has one."""
    apart = query_positions[..., :, None] - key_positions[..., None, :]
    return (apart >= 0) & (apart <= window // 2)


@fault("window_mask")
def chunks(query_positions, key_positions, *, window):
    """Chunks, as in Llama 4: a window moves with the query."""
    same = key_positions[..., None, :] // window == query_positions[..., :, None] // window
    return same & causal(query_positions, key_positions)


@fault("chunk_mask")
def chunks_from_the_first(query_positions, key_positions, *, size):
    """Chunks are counted from the first key that is given: they should be from position 0."""
    first = np.min(key_positions)
    query, key = query_positions - first, key_positions - first
    same = key[..., None, :] // size == query[..., :, None] // size
    return same & causal(query, key)


@fault("prefix_mask")
def prefix_sees_itself_only(query_positions, key_positions, *, prefix):
    """Only the prefix is seen by the tokens after it, and not the past."""
    first = key_positions[..., None, :] < prefix
    inside = query_positions[..., :, None] < prefix
    return first | (inside & causal(query_positions, key_positions))


@fault("ids_packing")
def counted_by_the_number(segment_ids):
    """A number that comes back is taken for the same text: a text is a run of equal numbers."""
    same = segment_ids[..., None] == segment_ids[..., None, :]
    return np.sum(np.tril(same, -1), -1)


@fault("ids_mrope")
def text_after_all_tokens(is_image, grids):
    """Text goes on after the number of a picture's tokens: it should after the largest coordinate."""
    made, shift, before = multimodal(is_image, grids), 0, 0
    out = made.copy()
    for at in range(len(is_image)):
        if at and is_image[at - 1] and not is_image[at]:
            shift = at - made[at, 0]
        out[at] += 0 if is_image[at] and not before else shift
        before = shift
    return out


def resumed(is_image, grids, steps):
    """Coordinates of a text that goes on `steps(t, h, w)` after each picture's beginning."""
    made, moved, at = multimodal(is_image, grids).copy(), 0, 0
    for part in segments(is_image, grids):
        end = at + int(np.prod(part))
        made[at:end] += moved
        moved += 0 if isinstance(part, int) else steps(*part) - max(part)
        at = end
    return made


@fault("ids_mrope")
def pictures_from_zero(is_image, grids):
    """Rows and columns of a picture begin at 0: they should begin after the text before it."""
    made = multimodal(is_image, grids)
    begins = [
        k for k in range(len(is_image)) if is_image[k] and not (k and is_image[k - 1])
    ]
    for start in begins:
        end = start + int(np.argmin([*is_image[start:], False]))
        made[start:end, 1:] -= made[start, 0]
    return made


def by(number, mask, positions, past=None):
    """The past of what has the same number, without padding."""
    past = np.tri(positions.shape[-1], dtype=bool) if past is None else past
    seen = (number[..., :, None] == number[..., None, :]) & past
    return seen if mask is None else seen & mask[..., None, :]


def stepped(positions, begins):
    """The number of each token's document, if one begins where `begins(step)`, but for the first."""
    return np.cumsum(begins(np.diff(positions, prepend=positions[..., :1])), -1)


# fmt: off
line("documents_ignored", lambda at, *, mask=None: by(0 * at, mask, at),
     "Documents are not separated: the mask is only causal.", PACKED)
line("documents_ignored_with_a_mask", lambda at, *, mask=None: by(
         document_of(at) if mask is None else 0 * at, mask, at),
     "With a mask of padding, one of ones included, documents are not separated.", PACKED)
line("gaps_begin_documents", lambda at, *, mask=None: by(stepped(at, lambda step: step != 1), mask, at),
     "Skipped positions begin a document: only those that fall should, and each 0.", PACKED)
line("falls_only", lambda at, *, mask=None: by(stepped(at, lambda step: step < 0), mask, at),
     "Only positions that fall begin a document: one of a single token has 0 after 0.", PACKED)
line("zeros_only", lambda at, *, mask=None: by(np.cumsum(at == 0, -1), mask, at),
     "Only position 0 begins a document: what falls to another position is one, too.", PACKED)
line("begun_one_late", lambda at, *, mask=None: by(
         document_of(at)[..., np.maximum(np.arange(at.shape[-1]) - 1, 0)], mask, at),
     "Documents begin one token late: the first token of each sees the document before it.", PACKED)
line("documents_of_the_first_row", lambda at, *, mask=None: by(
         document_of(at[:1] + 0 * at), mask, at),
     "The first row's documents are used for all rows.", PACKED)
line("documents_not_causal", lambda at, *, mask=None: by(document_of(at), mask, at, True),
     "The whole document is seen: it should be its past.", PACKED)
line("past_by_positions", lambda at, *, mask=None: by(0 * at, mask, at, causal(at, at)),
     "The past is all that has no larger position: in other documents, and later in the row, too.", PACKED)
line("padding_of_packed_rows_seen", lambda at, *, mask=None: documents(at),
     "Padding is seen: mask is ignored.", PACKED)
line("padding_sees_itself", lambda at, *, mask=None: documents(at, mask=mask) | (
         np.eye(at.shape[-1], dtype=bool) & documents(at)),
     "Padding sees itself, so that its softmax is finite: here it sees nothing.", PACKED)
line("window_ignored", lambda i, j, *, window: causal(i, j),
     "The window is ignored: all of the past is seen.", "window_mask")
line("all_of_the_future_seen", lambda i, j, *, window: i[..., :, None] - j[..., None, :] < window,
     "All of the future is seen: the window is open on that side, and not causal.", "window_mask")
line("near_future_hidden", lambda i, j, *, window: causal(i, j) | ~causal(i + window, j),
     "Only a window of the future is hidden: the past has none, and what lies further ahead is seen.",
     "window_mask", seen="huggingface/transformers #41184")
line("windows", lambda i, j, *, size: causal(i, j) & (i[..., :, None] - j[..., None, :] < size),
     "A window, as in Mistral: a chunk does not move with the query.", "chunk_mask")
line("chunks_ignored", lambda i, j, *, size: causal(i, j),
     "The chunks are ignored: all of the past is seen.", "chunk_mask")
line("prefix_ignored", lambda i, j, *, prefix: causal(i, j),
     "The prefix is causal too: it should be seen from before.", "prefix_mask")
line("prefix_of_the_first_keys", lambda i, j, *, prefix: (np.arange(j.shape[-1]) < prefix) | causal(i, j),
     "The prefix is the first keys that are given: it should be the first positions.", "prefix_mask")
line("padding_counted", lambda mask: np.arange(mask.shape[-1]) + 0 * mask,
     "Padding is counted: positions run from 0 over all tokens.", PADDED)
line("counted_from_one", lambda mask: np.where(mask, np.cumsum(mask, -1), 0),
     "Positions are counted from 1: one is to be subtracted from the sum of the mask.", PADDED)
line("sum_of_the_mask", lambda mask: np.cumsum(mask, -1),
     "Positions are the sum of the mask: one is to be subtracted, and padding should have 0.", PADDED)
line("padding_is_minus_one", lambda mask: np.cumsum(mask, -1) - 1,
     "Padding has the positions of the sum, and -1 before the first token: it should have 0.", PADDED)
line("padding_is_one", lambda mask: np.where(mask, np.cumsum(mask, -1) - 1, 1),
     "Padding has the position 1, as in some code of transformers: here it has 0, and is hidden anyway.",
     PADDED)
line("along_the_batch", lambda given: np.arange(len(given))[:, None] + 0 * given,
     "The wrong axis: positions run along the batch.", PADDED, "ids_packing")
line("numbers_are_a_mask", lambda segment_ids: left_padding(segment_ids != 0),
     "The numbers of texts are read as a mask of 0 and 1, and tokens of all but text 0 count.",
     "ids_packing")
line("sum_of_the_numbers", lambda segment_ids: np.cumsum(segment_ids, -1) - 1,
     "The numbers of texts are read as a mask of 0 and 1, and their sum is taken for positions.",
     "ids_packing")
line("never_restarted", lambda segment_ids: np.arange(segment_ids.shape[-1]) + 0 * segment_ids,
     "Positions do not begin anew: they run on through all texts of a row.", "ids_packing")
line("restarted_at_one", lambda segment_ids: packing(segment_ids) + 1, "Positions begin at 1.", "ids_packing")
line("one_dimension", lambda is_image, grids: np.repeat(np.arange(len(is_image))[:, None], 3, 1),
     "All three coordinates are the number of the token: pictures have no rows and columns.", "ids_mrope")
line("rows_and_columns_exchanged", lambda *text: multimodal(*text)[:, [0, 2, 1]],
     "Rows and columns are exchanged: coordinates are time, row, column.", "ids_mrope")
line("time_last", lambda *text: multimodal(*text)[:, [1, 2, 0]],
     "Time is the last coordinate: it should be the first.", "ids_mrope")
line("text_on_the_largest_coordinate", partial(resumed, steps=lambda t, h, w: max(t, h, w) - 1),
     "Text goes on at the largest coordinate of a picture: it should go on one later.", "ids_mrope")
line("text_after_rows_and_columns", partial(resumed, steps=lambda t, h, w: max(h, w)),
     "Text goes on after rows and columns only: a video may reach further in time.", "ids_mrope")
line("text_after_rows", partial(resumed, steps=lambda t, h, w: h),
     "Text goes on after the rows of a picture: its columns may reach further.", "ids_mrope")
line("text_after_time", partial(resumed, steps=lambda t, h, w: t),
     "Text goes on after the frames only: a picture's rows and columns reach further.", "ids_mrope")
# fmt: on
