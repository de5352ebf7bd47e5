"""What *A decoder* says of more stories and more steps: a minute of training."""

import numpy as np
import torch

from posattn.stories import encode, story
from tests.conftest import need
from tests.pages.reading import page_of


def test_more_stories_and_steps_end_the_coin_toss():
    page = page_of("decoder")
    need(page.load(), "the page is not built: nox -s docs")
    names, rng = page.torch, np.random.default_rng(1)
    drawn = [story(rng, num_facts=2, num_questions=4)[0] for _ in range(22_000)]
    train = np.array([encode(words) for words in drawn])[2000:]
    order = rng.integers(len(train), size=(2500, 32))
    learn = torch.func.grad_and_value(names.loss_torch)
    w = {name: torch.from_numpy(array).float() for name, array in names.first.items()}
    mean = square = {name: torch.zeros_like(array) for name, array in w.items()}
    right = {}
    for t, chosen in enumerate(order, start=1):
        slope, _ = learn(w, torch.from_numpy(train[chosen]))
        w, mean, square = names.adam_torch(w, slope, mean, square, t, rate=0.003)
        if t in (500, 2500):
            logits, _ = names.decoder_torch(torch.from_numpy(names.test), w)
            answers = logits.argmax(-1).numpy()[names.row, names.answer_at - 1]
            right[t] = np.mean(answers == names.test[names.row, names.answer_at])
    assert right[500] < 0.55
    assert right[2500] > 0.75
