"""The config scope."""

import numpy as np

from tests.records import PLANS


def test_the_caption_names_the_first_pairs_below_one_circle(page):
    first = [int(np.argmax(each < 1)) for each in page.torch.circles.values()]
    assert first == [41, 48]
    assert np.all(np.diff(list(page.torch.circles.values())) < 0)
    assert len(page.glued["scope"]["models"]) == len(PLANS)
