"""Exercise 9: the buckets of T5.

T5 learns a number for each bucket of distances, not for each distance.
One direction has m buckets: all 32 in a decoder, and 16 where both directions are seen.
Distances below m / 2 have a bucket each.
A distance s beyond them is in bucket m / 2 + floor(m / 2 * log(s / (m / 2)) / log(max_distance / (m / 2))),
and at most in bucket m - 1.
"""

import numpy as np


def t5_bucket(
    relative_position: np.ndarray,
    *,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> np.ndarray:
    """Find the bucket of each relative position.

    Args:
        relative_position: whole numbers, key minus query, of any shape.
        num_buckets: the number of buckets of both directions together.
        max_distance: from here on, all distances share a bucket.
        bidirectional: keys after the query have the second half of the buckets. If False, m is all of
            `num_buckets`, and such keys are in bucket 0.

    Returns:
        Whole numbers, of the shape of `relative_position`.
    """
    raise NotImplementedError
