"""A decoder in sixty lines."""

import math
import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import torch

from posattn.stories import decode, encode, story

FRAMEWORKS = "torch", "jax"


@cache
def possible():
    """All stories of one fact."""
    rng = np.random.default_rng(3)
    return {" ".join(story(rng, 1, 2)[0]) for _ in range(5000)}


def from_scratch(page, framework):
    """The cells of the model, its training and its writing."""
    return [
        cell.code
        for cell in page.cells
        if framework in cell.tags
        and ("scratch" in cell.tags or "enumerate(batches" in cell.code)
    ]


def test_sixty_lines(page):
    """Sixty lines are enough for all of it: a model of the same form as Llama, the loop that trains it,
    and the function that lets it write. They use nothing but the framework.

    We write these lines in five cells, and after each one we check it against the library.
    """
    for framework in FRAMEWORKS:
        cells = from_scratch(page, framework)
        assert len(cells) == 6  # the last is the loop
        lines = [line for cell in cells for line in cell.splitlines() if line.strip()]
        assert len(lines) <= 60
        assert not any("posattn" in line or "optax" in line for line in lines)


def test_the_lines_of_the_table_are_in_the_code(page):
    """Most of the lines you have met already."""
    said = re.findall(r"^\| `(.+?)` \| .+ \| \{doc\}", page.text, re.MULTILINE)
    assert len(said) == 9
    for framework in FRAMEWORKS:
        code = "\n".join(from_scratch(page, framework)).replace(f"_{framework}", "")
        assert [line for line in said if line not in code] == []


def test_eq_decoder_floor(page):
    r"""$$ \frac{\ln 448}{20} = 0.305 . $$

    So there are $8 \cdot 4 \cdot 7 \cdot 2 = 448$ stories, all equally likely.

    A model that guesses blindly among 22 words has a loss of $\ln 22 = 3.09$.

    In the last steps the loss is 0.32, and hardly anything is left to learn.
    """
    assert len(possible()) == 8 * 4 * 7 * 2 == 448
    assert {len(words.split()) for words in possible()} == {21}
    assert round(math.log(448) / 20, 3) == 0.305
    assert round(math.log(22), 2) == 3.09
    for losses in (page.torch.losses, page.jax.losses):
        assert losses[0] > 2
        assert round(np.mean(losses[-20:]), 2) == 0.32


def test_float32_is_fine_for_a_story(page):
    """These angles are computed in float32, which is fine for 21 words."""
    places = np.arange(21.0)[:, None] * 10000.0 ** -(np.arange(4) / 4)
    assert abs(np.float32(places) - places).max() < 1e-5


def test_no_hidden_fact_is_learned(page):
    r"""a fifth of all facts never occur in training, in neither order of the questions

    In training only 356 of the 448 stories can occur, and a model that knows this can reach
    $\ln 356 / 20 = 0.294$.
    """
    all_texts = np.array([encode(words) for words in possible()])
    shown = all_texts[:, [1, 2, 4]].sum(axis=1) % 5 != 0
    assert shown.sum() == 356
    assert round(math.log(356) / 20, 3) == 0.294
    names = page.torch
    seen, unseen = (
        {tuple(text[:6]) for text in each} for each in (names.seen, names.unseen)
    )
    assert not seen & unseen
    assert 0.15 < len(unseen) / 224 < 0.25
    assert not {tuple(text[:6]) for batch in names.batches for text in batch} & unseen


def test_questions_and_answers(page):
    """The same words in another order, and the question changes with it.

    After who hears the must come the object of the fact, and after whom does the its subject.

    the noun in the first question, which is word 9 of each story
    """
    for words in map(str.split, possible()):
        assert words[9] == (words[4] if words[6] == "who" else words[1])
    assert (
        page.printed.count("right questions about facts it never saw: 100 percent\n") == 2
    )
    assert page.printed.count("right answers about facts it never saw: 100 percent\n") == 2
    for line in (
        "the dog bites the man . who bites the man ? dog .\n",
        "the man bites the dog . who bites the dog ? man .\n",
        "the fox sees the king . whom does the fox see ? king .\n",
    ):
        assert page.printed.count(line) == 2


def test_stories_of_its_own(page):
    """It chose the facts freely, and then it was bound by them: it asks about what it has told, and
    answers from its own story.
    """
    write = page.torch.write_torch
    texts = write(page.torch.start, page.torch.w_torch, 20, 1.0, np.random.default_rng(1))
    assert {decode(text) for text in texts} <= possible()


def test_both_frameworks_learn_alike(page):
    """The initial weights are random, drawn once in NumPy, so both frameworks start from the same ones."""
    own, other = np.array(page.torch.losses), np.array(page.jax.losses)
    assert abs(own - other)[:20].max() < 1e-3
    assert abs(own[-20:].mean() - other[-20:].mean()) < 0.01


def test_adam_is_the_framework_s(page):
    """Adam keeps two running means for each parameter: of its gradient, and of the square of its gradient.
    It moves the parameter by the first, divided by the root of the second.

    After one step the first is 0.1 times the gradient, which is ten times too small. Dividing by
    $1 - 0.9^{1} = 0.1$ corrects that, and at step $t$ the divisor is $1 - 0.9^t$.
    """
    rng = np.random.default_rng(0)
    first, slopes = rng.normal(size=4), rng.normal(size=(5, 4))
    theirs = torch.tensor(first, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.99))
    own = {"torch": {"x": torch.tensor(first)}, "jax": {"x": jnp.float32(first)}}
    kept = {
        "torch": ({"x": torch.zeros(4)},) * 2,
        "jax": ({"x": jnp.zeros(4)},) * 2,
    }
    for t, slope in enumerate(slopes, start=1):
        theirs.grad = torch.tensor(slope)
        optimizer.step()
        own["torch"], *kept["torch"] = page.torch.adam_torch(
            own["torch"], {"x": torch.tensor(slope)}, *kept["torch"], t
        )
        own["jax"], *kept["jax"] = page.jax.adam_jax(
            own["jax"], {"x": jnp.float32(slope)}, *kept["jax"], t
        )
    for framework in FRAMEWORKS:
        assert np.allclose(np.asarray(own[framework]["x"]), theirs.detach(), atol=1e-5)


def test_without_the_mask_the_loss_is_too_good(page):
    """What you see: a wonderful loss, below the floor

    in training each word could see the next one, the one it had to predict.
    """
    code = next(cell for cell in from_scratch(page, "torch") if "attend_torch" in cell)
    peeking = code.replace("scores.masked_fill(later, -torch.inf)", "scores")
    assert peeking != code
    names = dict(vars(page.torch))
    for cell in from_scratch(page, "torch")[:4]:
        exec(peeking if cell == code else cell, names)
    w = {name: torch.from_numpy(a).float() for name, a in names["first"].items()}
    mean = square = {name: torch.zeros_like(a) for name, a in w.items()}
    learn = torch.func.grad_and_value(names["loss_torch"])
    for t, batch in enumerate(names["batches"][:100], start=1):
        slope, loss = learn(w, torch.from_numpy(batch))
        w, mean, square = names["adam_torch"](w, slope, mean, square, t)
    assert loss < math.log(448) / 20


def test_positions_that_start_again(page):
    """training is fine, because there is no past. While the model writes, every new word is rotated to
    position 0.
    """
    right = next(cell for cell in from_scratch(page, "torch") if "attend_torch" in cell)
    wrong = right.replace("rotate_torch(q, p)", "rotate_torch(q, p - start)")
    wrong = wrong.replace("rotate_torch(k, p)", "rotate_torch(k, p - start)")
    assert wrong.count("p - start") == 2
    names = dict(vars(page.torch))
    exec(wrong, names)
    w, attend = page.torch.w_torch, page.torch.attend_torch
    x = w["embedding"]
    whole, _ = attend(x, w, 0)
    assert torch.equal(names["attend_torch"](x, w, 0)[0], whole)
    _, past = attend(x[:21], w, 0)
    assert abs(attend(x[21:], w, 0, past)[0] - whole[21:]).max() < 1e-5
    assert abs(names["attend_torch"](x[21:], w, 0, past)[0] - whole[21:]).max() > 0.01


def test_gumbel_noise_draws_from_the_softmax(page):
    r"""Add to each logit a random number $-\ln(-\ln u)$, where $u$ is uniform between 0 and 1, and take
    the largest sum. Then word $j$ wins with exactly its softmax probability.
    """
    scores = np.array([1.0, -0.5, 0.25, 2.0])
    u = np.random.default_rng(0).uniform(size=(200_000, 4))
    share = np.bincount((scores - np.log(-np.log(u))).argmax(1)) / len(u)
    assert np.allclose(share, jax.nn.softmax(scores), atol=0.005)


def test_adam_by_hand(page):
    """The first moves by 0.01 in each step, so by 1 in all. The second hardly moves. The size of the
    gradients cancels.
    """
    moved = re.findall(r"last sign (..): moved (-?[\d.]+)", page.printed)
    assert [sign for sign, _ in moved] == ["+1", "+1", "-1", "-1"]
    assert [amount for _, amount in moved[:2]] == ["1.00", "1.00"]
    assert moved[2] == moved[3]
    assert abs(float(moved[2][1])) < 0.1


def test_two_facts_fit_the_page(page):
    """In the notebook, set num_facts=2 and num_questions=4 where the stories are drawn, and raise steps."""
    words, places, _ = story(np.random.default_rng(0), num_facts=2, num_questions=4)
    assert len(encode(words)) == 42
    assert len(places) == 4
