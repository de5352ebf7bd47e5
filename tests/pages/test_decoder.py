"""A decoder in sixty lines."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

from posattn.stories import CHECKPOINT, decode, encode, story
from tests.nightly.studies.settings import STORIES


def test_eq_decoder_floor():
    r"""$$ \frac{\ln 8 + \ln 4 + \ln 7 + \ln 2}{20} = \frac{\ln 448}{20} = 0.305 . $$"""
    rng = np.random.default_rng(3)
    texts = {tuple(story(rng, num_facts=1, num_questions=2)[0]) for _ in range(5000)}
    assert len(texts) == 448
    costs = []  # of a perfect model, for each guess
    for place in range(1, 21):
        before = Counter(text[:place] for text in texts)
        then = Counter(text[: place + 1] for text in texts)
        ratios = [then[text[: place + 1]] / before[text[:place]] for text in texts]
        costs.append(-np.mean(np.log(ratios)))
    assert np.mean(costs) == pytest.approx(np.log([8, 4, 7, 2]).sum() / 20)
    assert np.log(448) / 20 == pytest.approx(0.305, abs=5e-4)
    assert np.isclose(costs, 0).sum() == 16


def test_norm_and_gate_by_hand(page):
    assert round(12.5**0.5, 2) == 3.54
    x = torch.tensor([[3.0, 4.0], [30.0, 40.0]])
    assert np.allclose(page.torch.norm_torch(x, 1.0), [0.85, 1.13], atol=0.005)
    gate = torch.nn.functional.silu(torch.tensor([2.0, -2.0]))
    assert np.allclose(gate, [1.76, -0.24], atol=0.005)


def test_shares_and_costs_by_hand(page):
    sizes = {name: array.size for name, array in page.torch.first.items()}
    share = (sizes["embedding"] + sizes["head"]) / sum(sizes.values())
    assert round(100 * share) == 5
    assert round(100 * page.torch.large[2] / page.torch.large.sum()) == 14
    assert round(np.log(2) / 41, 3) == 0.017
    width = json.loads((CHECKPOINT / "config.json").read_text())["hidden_size"]
    assert (width, STORIES.steps) == (2 * 32, 4000)


def test_sixty_lines_are_enough(page):
    for framework in ("torch", "jax"):
        lines = [
            line
            for cell in page.cells
            if framework in cell.tags
            and ("scratch" in cell.tags or "enumerate(batches" in cell.code)
            for line in cell.code.splitlines()
            if line.strip()
        ]
        assert 40 < len(lines) <= 60
        assert "posattn" not in "".join(lines)


def test_no_fact_of_the_test_was_learned(page):
    seen, unseen = (
        {tuple(text[:6]) for text in x} for x in (page.torch.seen, page.torch.unseen)
    )
    assert not seen & unseen
    assert (2 * len(seen), 2 * len(seen | unseen)) == (356, 448)
    assert round(page.torch.batches[..., 0].size / 356) == 18


def test_adam_is_that_of_the_framework(page):
    slopes = np.random.default_rng(0).normal(size=(5, 4))
    theirs = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.99))
    ours = mean = square = {"x": torch.zeros(4)}
    for t, slope in enumerate(torch.tensor(slopes, dtype=torch.float32), start=1):
        theirs.grad = slope
        optimizer.step()
        ours, mean, square = page.torch.adam_torch(ours, {"x": slope}, mean, square, t)
    assert torch.allclose(ours["x"], theirs, atol=1e-6)


def test_losses_end_just_above_the_floor(page):
    own, other = np.array(page.torch.losses), np.array(page.jax.losses)
    assert np.allclose(own[:20], other[:20], atol=1e-3)
    for losses in (own, other):
        assert losses[0] > np.log(22)  # worse than a blind guess
        assert losses[-20:].mean() == pytest.approx(0.32, abs=0.005)
        assert max(losses[80:]) < 0.37


def test_grammar_comes_before_telling_nouns_apart(page):
    names = page.torch
    told = "the dog bites the cat . who bites the cat ? dog ."
    text = encode(f"{told} whom does the dog bite ? cat .")
    p = dict(zip(names.steps_shown, np.array(names.p_right), strict=True))
    nouns, verbs = np.array([9, 11, 16, 19]), np.array([7, 17])
    assert decode(text[verbs]) == "bites bite"
    assert np.allclose(p[30][verbs - 1], [0.90, 0.79], atol=0.01)
    right = p[30][nouns - 1]
    assert 0.4 - 0.005 < min(right) < max(right) < 0.5 + 0.005
    assert np.allclose(p[200][[0, 1, 3]], [1 / 8, 1 / 4, 1 / 7], atol=0.05)
    assert min(p[200][nouns - 1]) > 0.95


def test_two_facts_are_a_coin_toss(page):
    names = page.torch
    logits, _ = names.decoder_torch(torch.from_numpy(names.test), names.w_two)
    answers = logits.argmax(-1).numpy()[names.row, names.answer_at - 1]
    assert np.mean(answers[:, None] == names.candidates, axis=0).sum() > 0.98
    assert abs(np.mean(answers == names.test[names.row, names.answer_at]) - 0.5) < 0.04
