"""Ask it yourself."""

import re
from pathlib import Path

import numpy as np
import torch

from posattn.reference import frequencies
from posattn.stories import CHECKPOINT, NOUNS, VERBS, WORDS, encode
from posattn.torch import Decoder, Rotary, split_heads, yarn
from tests.nightly.studies import checkpoints, language
from tests.nightly.studies.settings import STORIES

SCRIPT = Path(__file__).parents[2] / "docs" / "_static" / "decoder.js"
KING = WORDS.index("king")


def top(printed):
    """The words that a cell prints, and their probabilities."""
    return {
        word: float(p) for word, p in re.findall(r"^ *(\S+) +(\d\.\d+)$", printed, re.M)
    }


def printed(page, tag):
    """What the cell with a tag prints."""
    (cell,) = (cell for cell in page.cells if tag in cell.tags)
    return top(cell.printed)


def printed_text(page, tag):
    """All that the cell with a tag prints."""
    (cell,) = (cell for cell in page.cells if tag in cell.tags)
    return cell.printed


def likeliest(model, text, positions=None):
    """The likeliest next word of a text, and its probability."""
    p = model(torch.from_numpy(encode(text)), positions=positions)[-1].softmax(-1)
    return WORDS[p.argmax()], float(p.max())


def moved_apart(text, shifts):
    """The tokens of a text, once for each shift, and their positions with the question shifted."""
    tokens = torch.from_numpy(encode(text)).expand(len(shifts), -1)
    places = torch.arange(tokens.shape[1])
    asks = places >= text.split().index("whom")
    return tokens, places + torch.tensor(shifts)[:, None] * asks


def test_the_language(page):
    """They know 22 words: eight nouns, four verbs in two forms, and the, who, whom, does, the period
    and the question mark.
    """
    assert len(WORDS) == 22
    assert (len(NOUNS), len(VERBS)) == (8, 4)
    signs = {"the", "who", "whom", "does", ".", "?"}
    assert set(WORDS) == {*NOUNS, *VERBS, *VERBS.values()} | signs


def test_the_models_and_their_training(page):
    """Each has two layers with four heads and a width of 64

    Each was trained on 4000 batches of 32 stories, none of them longer than 48 tokens.

    a training story had 2 to 4 facts, and the rest of it was three questions with their answers.

    out of two hundred questions of each kind.

    There are eight nouns, so guessing a noun would be right 12.5 percent of the time.
    """
    model = page.torch.model_torch
    assert (len(model.blocks), model.blocks[0].attention.num_heads) == (2, 4)
    assert model.embedding.embedding_dim == 64
    assert (STORIES.steps, STORIES.batch, language.LENGTH) == (4000, 32, 48)
    assert 100 / len(NOUNS) == 12.5
    assert {len(rows) for rows in page.torch.questions.values()} == {200}
    told = set()
    for tokens, targets in zip(*next(language.batches(0, STORIES)), strict=True):
        words = [WORDS[token] for token in tokens[targets >= 0]]
        asks = [n for n, word in enumerate(words) if word in ("who", "whom")]
        assert len(asks) == 3
        assert words[-3] == "?"
        told.add(asks[0] / 6)
    assert told == {2, 3, 4}


def test_one_start_was_picked():
    """Each row is one model, and the rotary one was picked"""
    assert checkpoints.SEEDS["rotary"] != checkpoints.SEEDS["alibi"]


def test_it_is_sure_of_the_king(page):
    """It says king, and it's sure."""
    assert max(printed(page, "out-ask").items(), key=lambda pair: pair[1])[0] == "king"
    assert printed(page, "out-ask")["king"] > 0.99


def test_two_heads_find_the_fact(page):
    """In layer 0 it puts most of its weight on the fox of the question (…), and so learns who the question
    is about. In layer 1 it puts most of it on the period after king (…), where the fact about this fox ends.

    In layer 0 each period has collected the two nouns of its own fact
    """
    words = page.torch.text.split()
    left, right = page.torch.model_torch.attention_weights(torch.from_numpy(encode(words)))
    assert min(left[2, -1].max(), right[2, -1].max()) > 0.5
    assert left[2, -1].argmax() == words.index("fox", words.index("whom"))
    assert right[2, -1].argmax() == words.index("king") + 1
    for period in (5, 11, 17):
        assert left[0, period, [period - 1, period - 4]].sum() > 0.8


def test_the_panel():
    """At first the panel is only a button, Start, and the line Start fetches 200 KB of weights.

    What you type stays with you.

    Add four facts makes it longer, and first story brings it back.
    """
    script = SCRIPT.read_text("utf-8")
    assert "Start fetches 200 KB of weights." in script
    assert round((CHECKPOINT / "model.safetensors").stat().st_size / 1024) == 200
    assert re.findall(r"\bfetch\((.*?)\);", script) == [
        "`${folder}${scheme.toLowerCase()}/model.safetensors`"
    ]
    assert not re.search("XMLHttpRequest|sendBeacon|WebSocket|localStorage", script)
    for button in ("add four facts", "first story"):
        assert f'"{button}":' in script


def test_the_panel_opens_with_the_story(page):
    """The panel opens with the story and the question from above"""
    script = SCRIPT.read_text("utf-8")
    assert f'STORY = "{page.torch.text}"' in script
    assert "[STORY, MAPS - 1]" in script


def test_without_positions_the_role_is_known(page):
    """Those are the three objects of the story, the ones to whom something is done, and the three subjects
    get next to nothing.

    before dog there are none of either, and before fox one of each, but before man there is one verb and no
    period, and before king two verbs and one period.

    An object always has one more verb than periods before it and a subject has equally many
    """
    words = page.torch.text.split()
    before = {
        word: (sum(w in VERBS for w in words[:place]), words[:place].count("."))
        for place, word in reversed(list(enumerate(words[:18])))
    }
    assert [before[w] for w in ("dog", "fox", "man", "king")] == [
        (0, 0),
        (1, 1),
        (1, 0),
        (2, 1),
    ]
    assert all(before[w][0] == before[w][1] for w in ("dog", "fox", "cat"))
    assert all(before[w][0] == before[w][1] + 1 for w in ("man", "king", "bird"))
    assert page.glued["none_objects"] > 0.99
    assert page.glued["none_says_man"] < 0.4
    assert page.glued["none_alone"] > 0.99
    model = page.torch.models["none"]
    for kind, place in (("who", 1), ("whom", 4)):  # so it is in other stories, too
        rows = page.torch.questions[kind]
        said = model(rows[:, :-1])[:, -1].argmax(-1)
        assert (said[:, None] == rows[:, place:24:6]).any(1).all()


def test_the_shortcuts(page):
    """The rotary model still says king, with …. ALiBi's says bird, with ….

    We drew two hundred stories of three facts and asked a question of this kind about each.
    """
    said = page.torch
    hear = said.text.replace("fox see ?", "fox hear ?")
    for scheme, word in (("rotary", "king"), ("ALiBi", "bird")):
        assert likeliest(said.models[scheme], hear) == (word, page.glued[f"{scheme}_hear"])
        assert page.glued[f"{scheme}_hear"] > 0.99
        assert page.glued[f"{scheme}_shortcut"] > 180
    assert len(said.asks) == 200


def test_a_shift_of_all_positions_changes_nothing(page):
    """The answer stays, and the panel gives the largest change of any attention weight as 0.0000. The
    same holds for the other two models.

    The question mark stood at 23 and the period of its fact at 11, which is 12 tokens back. After the shift
    they are at 123 and 111, and that is 12 again.
    """
    tokens = torch.from_numpy(encode(page.torch.text))
    here = torch.arange(len(tokens))
    assert page.torch.text.split()[23] == "?"
    assert page.torch.text.split()[10:12] == ["king", "."]
    assert 23 - 11 == 123 - 111 == 12
    for model in page.torch.models.values():
        for one, other in zip(
            model.attention_weights(tokens, positions=here),
            model.attention_weights(tokens, positions=here + 100),
            strict=True,
        ):
            assert torch.allclose(one, other, atol=2e-5)


def test_only_the_question_is_shifted(page):
    """Up to a shift of 33 the rotary model is sure of the king, and from one step to the next it loses him,
    from 0.96 to 0.06. At larger shifts he comes and goes, and is first at fewer than half of them. ALiBi's model says
    king at every shift up to 200. The
    model without positions can't notice the shift, and says what it said in the first experiment.
    """
    said = page.torch
    tokens, positions = moved_apart(said.text, range(201))
    guesses = {
        scheme: model(tokens, positions=positions)[:, -1].softmax(-1)
        for scheme, model in said.models.items()
    }
    right = guesses["rotary"].argmax(-1) == KING
    assert right[:34].all()
    assert guesses["rotary"][:34, KING].min() > 0.9
    assert not right[34]
    assert 0 < right[34:].sum() < len(right[34:]) / 2
    assert (right[34:-1] & ~right[35:]).sum() > 1
    assert (guesses["ALiBi"].argmax(-1) == KING).all()
    assert (guesses["none"].argmax(-1) == WORDS.index("man")).all()
    assert page.glued["rotary_king"] < 0.5
    assert page.glued["ALiBi_king"] > 0.99
    assert page.glued["none_moved"] == 0
    assert min(page.glued["ALiBi_moved"], page.glued["rotary_moved"]) > 0.1


def test_too_far(page):
    """At 34 it suddenly reads the very first token, a the, with …. That the is now 57 tokens away.

    Within 47 tokens, which covers every distance in training, a the beats the question mark itself only at
    one or two tokens back. The next distance where it does is 57
    """
    lines = re.findall(
        r"shift +(\d+): says (\w+) +gives king (\d\.\d+)", printed_text(page, "out-far")
    )
    for shift, word, p in lines:
        assert (int(shift) <= 33) == (float(p) > 0.9)
        assert (word == "king") == (float(p) > 0.5)
    assert [int(shift) for shift, word, _ in lines if word == "king"][-2:] == [60, 150]
    assert ("34", "man", "0.06") in lines
    assert ("33", "king", "0.96") in lines
    assert len(page.torch.text.split()) - 1 + 34 == 57 > language.LENGTH - 1 == 47
    scores = page.torch.scores
    better = [d for d in range(1, 121) if scores[d] > page.glued["own_score"]]
    assert better[:3] == [1, 2, 57]
    assert better == [1, 2, 57, 58, 59, 63, 64, 114, 115, 120]
    assert page.glued["first_the"] > 0.9
    assert page.glued["itself_33"] > 0.7 > 0.1 > page.glued["itself_34"]


def test_the_head_tells_the_questions_apart(page):
    """there's a the two tokens before the question mark, and the head reads it with …. In a whom question the
    nearest the is three tokens back, and the head reads itself.
    """
    for kind, rows in page.torch.questions.items():
        weights = page.torch.models["rotary"].attention_weights(rows[:, :-1])[0][:, 0, -1]
        back = {"who": 2, "whom": 0}[kind]
        assert (weights.argmax(-1) == weights.shape[-1] - 1 - back).all()
        near = {"who": 2, "whom": 3}[kind]
        assert (rows[:, -2 - near] == WORDS.index("the")).all()
    assert page.glued["who_the"] > 0.9


def test_pair_two_comes_around(page):
    """To pairs 0 and 1, which come around quickly, distance 20 looks much like distance 2.

    after 20 tokens it has made about a third of a turn, and its $-4.93$ keeps the sum far below

    Even at 45, close to the longest distance of training, the sum is only 6.81. But at 57 pair 2 has almost
    finished its first turn, all three agree again
    """
    rows = {
        int(line.split()[0]): [float(number) for number in line.split()[1:]]
        for line in printed_text(page, "out-pairs").splitlines()[1:]
    }
    assert min(rows[20][:2]) > 1.5
    assert rows[20][2] == -4.93
    assert rows[45][-1] == 6.81
    assert min(rows[57][:3]) > 1.5
    turns = np.array([20, 57]) * frequencies(16)[2] / (2 * np.pi)
    assert np.allclose(turns, [1 / 3, 0.9], atol=0.02)
    near = rows[2][-1] - rows[57][-1]
    assert abs(near) < 1
    assert max(rows[20][-1], rows[45][-1]) < page.glued["own_score"]


def test_the_king_comes_back_by_luck(page):
    """At 60 and 150 no the of the story happens to be at one of the bad distances, so the head reads itself
    again
    """
    better = [d for d in range(3, 121) if page.torch.scores[d] > page.glued["own_score"]]
    words = page.torch.text.split()
    for shift in (60, 150):
        back = {23 + shift - j for j, word in enumerate(words[:18]) if word == "the"}
        assert not back & {*better, 177, 178}
        assert page.glued[f"itself_{shift}"] > 0.85


def test_the_the_costs_answers(page):
    """so we hide every the of the facts from the question mark, in all eight heads. At a shift of
    34 this raises king from 0.06 to …, although man stays first, and at 100 king is first again

    So this word is a good part of the trouble but not all of it
    """
    glued = page.glued
    assert round(glued["open_34"], 2) == 0.06
    assert 0.4 < glued["hidden_34"] < 0.5
    assert glued["hidden_100"] > 0.9 > 0.5 > glued["open_100"]
    assert np.isclose(glued["open_100"], glued["rotary_king"], atol=1e-4)
    lost = glued["hidden_all"] - glued["open_right"]
    assert 0.4 < (glued["hidden_right"] - glued["open_right"]) / lost < 0.6
    assert glued["open_right"] < glued["hidden_right"] < glued["hidden_all"]
    hidden = page.torch.mask.logical_not().nonzero()
    words = page.torch.text.split()
    assert {words[j] for _, j in hidden.tolist()} == {"the"}
    assert [i for i, _ in hidden.tolist()] == [23] * 6


def test_alibi_keeps_the_ranking(page):
    """the king is found by the last two heads of layer 1.

    Head 3 has the smallest slope and hardly notices

    Head 0, with the steepest slope, does go blind.

    That's the largest change that the panel reports for ALiBi, …, slightly more than the … of the rotary model.
    """
    said, glued = page.torch, page.glued
    weights = said.models["ALiBi"].attention_weights(said.seen)[1][:, -1, 10]
    assert (weights > 0.9).tolist() == [False, False, True, True]
    assert abs(glued["facts_7"] - glued["facts_7_far"]) < 0.01
    assert glued["facts_4_far"] < 1e-6 < 0.1 < glued["facts_4"]
    assert np.isclose(
        glued["does_whom_far"] - glued["does_whom"], glued["ALiBi_moved"], atol=1e-4
    )
    assert 0 < glued["ALiBi_moved"] - glued["rotary_moved"] < 0.03
    assert abs(glued["odds_share"] - glued["facts_6_far"]) < 0.05


def test_the_extensions(page):
    """It now reaches the angle of 47 tokens only at 188, so the bad angle at 57 has moved out to 228, beyond
    the longest distance here.

    With YaRN it's as sure of the king there as at shift 0, and 0.77 of the four hundred answers are right,
    where it was 0.27.

    but at shift 0 it answers only about half as many questions as the model without it.

    at shift 0, where nothing needed repair, it brings the right answers from 0.87 down to 0.70. That's fewer
    than at shift 100

    a the 7 or 8 tokens back scores like one 2 back, and in a whom question the last fact has a the 8 tokens
    back.
    """
    slowed, factor = yarn(16, factor=4.0, trained_length=48)
    model = Decoder.from_config(CHECKPOINT / "config.json", weights=CHECKPOINT)
    for block in model.blocks:
        block.attention.rotate = Rotary(
            layout="half", frequencies=slowed, attention_factor=factor
        )
    seen = torch.from_numpy(encode(page.torch.text))
    said = page.torch.extended
    p = {name: each(seen)[-1].softmax(-1)[KING].item() for name, each in said.items()}
    assert np.isclose(model(seen)[-1].softmax(-1)[KING].item(), p["YaRN"], atol=1e-4)
    assert p["YaRN"] > 0.98 > 0.7 > p["interpolation"]
    assert np.isclose(frequencies(16)[2] / slowed[2], 4)
    assert (4 * 47, 4 * 57) == (188, 228)
    assert len(seen) - 1 + 100 < 228
    table = printed_text(page, "out-extended").splitlines()[2:]
    rows = {line.split()[0]: line.split()[1:] for line in table}
    assert list(rows) == ["none", "interpolation", "YaRN"]
    assert [row[3] for row in rows.values()] == ["dog", "king", "king"]
    assert rows["YaRN"][1] == rows["YaRN"][4]
    right = {name: (float(row[2]), float(row[5])) for name, row in rows.items()}
    assert (right["none"], right["YaRN"]) == ((0.87, 0.27), (0.70, 0.77))
    assert abs(right["interpolation"][0] / right["none"][0] - 0.5) < 0.03
    block = said["YaRN"].blocks[0]
    tokens = torch.from_numpy(encode(["the", *["?"] * 48]))
    at = torch.tensor([0, *range(48)])
    read = block.attention_norm(said["YaRN"].embedding(tokens))
    q, k = (
        block.attention.rotate(split_heads(project(read), 4), at)[0]
        for project in (block.attention.query, block.attention.key)
    )
    scores = (q[1:] @ k[0]).numpy()
    own = float(q[1] @ k[1])
    assert [d for d in range(1, 20) if scores[d] > own] == [1, 2, 7, 8]
    assert (page.torch.questions["whom"][:, 29 - 8] == WORDS.index("the")).all()
    assert page.glued["yarn_near"] > 0.8 > 0.05 > page.glued["yarn_far"]


def test_four_tokens_back_is_the_old_next_token(page):
    """the object is 1 token back and the subject 4. After the slowing, every distance looks like a
    quarter of itself, so nouns 1, 4 and 7 tokens back are at the angles of 0.25, 1 and 1.75 tokens, and
    a head that picked out 1 can hardly separate them.

    and it is no longer clear which token the king comes from.
    """
    words = page.torch.text.split()
    assert [(words[p - 1], words[p - 4]) for p in (5, 11)] == [
        ("man", "dog"),
        ("king", "fox"),
    ]
    assert 4 * page.glued["slowed"] == 1
    glued = page.glued
    assert glued["period_none_king"] > 0.7 > 0.5 > glued["period_interpolation_king"]
    assert glued["period_interpolation_man"] > 10 * glued["period_none_man"]
    assert glued["wrong_interpolation"] > 0.9 > 0.1 > glued["wrong_none"]
    word, p = likeliest(page.torch.extended["interpolation"], page.torch.text)
    assert word == "king"
    assert p < 0.6


def test_the_button_adds_these_facts(page):
    """The new facts come before the question, so the king moves ever farther away."""
    script = SCRIPT.read_text("utf-8")
    assert "who = (5 * n + (n >> 3)) % 8" in script
    assert "whom = ([1, 5, 3, 7][n % 4] * who + 1) % 8" in script
    assert "...more.slice(0, 4), ...words.slice(asked)" in script
    assert f'NOUNS = "{" ".join(NOUNS)}"' in script
    assert f'VERBS = "{" ".join(VERBS)}"' in script
    assert [len(facts) for facts in page.torch.grown] == [3 + 4 * n for n in range(8)]


def test_a_longer_story(page):
    """The rotary model fails at the first press, at 48 tokens. ALiBi's still says king there, with less
    confidence, and fails at 72. The model without positions was never right.

    at 48 tokens the longest distance is 47, hardly more than training had and far from the 57 of experiment 4.

    no training story had more than 4, and this one has 7.

    It says wolf. Write the dog hears the wolf instead, and king is first again

    From 72 to 168 tokens, ALiBi's model always names the object of the last fact with sees.

    Then ALiBi's model says king after every one of the seven presses
    """
    said = page.torch
    answers = {scheme: [] for scheme in said.models}
    for facts in said.grown:
        text = " ".join([*facts, said.asking])
        for scheme, model in said.models.items():
            answers[scheme].append(likeliest(model, text))
    words = {scheme: [word for word, _ in found] for scheme, found in answers.items()}
    assert words["rotary"][:2] == ["king", "wolf"]
    assert "king" not in words["rotary"][1:] + words["none"] + words["ALiBi"][2:]
    assert words["ALiBi"][:2] == ["king", "king"]
    assert answers["ALiBi"][1][1] < 0.7
    last = [[f.split()[4] for f in facts if " sees " in f][-1] for facts in said.grown]
    lengths = [6 * len(facts) + 6 for facts in said.grown]
    assert lengths == [24, 48, 72, 96, 120, 144, 168, 192]
    assert words["ALiBi"][2:7] == last[2:7]
    assert lengths[1] == language.LENGTH
    assert len(said.grown[1]) == 7 > language.FACTS == 4
    assert page.glued["swapped_least"] > 0.85
    assert page.glued["swapped_rotary"] < 4
    for scheme in ("rotary", "ALiBi"):
        assert likeliest(said.models[scheme], said.other[scheme])[0] == "king"


def test_three_lengths(page):
    """At 8 facts no distance is longer than 53, short of the 57 where head 0 breaks, and yet almost a
    third of its right answers are gone.
    That is mostly due to the number of facts: with four facts and a question that is shifted by 24,
    which puts the facts as far away, it still answers … of the questions, against 0.87 without the
    shift. At 16 facts distance adds to the trouble, and the rotary model does
    hardly better than the model without positions. YaRN brings part of the whom questions back there

    It helps who questions less, and even at 4 facts it costs both kinds some answers. ALiBi's model
    keeps most of its whom questions and loses the who questions quickly.
    """
    assert 6 * 8 + 6 - 1 == 53 < 57
    share = page.torch.lengths
    unmoved = (share["rotary", "who", 4] + share["rotary", "whom", 4]) / 2
    moved = page.glued["moved_24"]
    fewer = (share["rotary", "who", 8] + share["rotary", "whom", 8]) / 2
    assert f"{unmoved:.2f}" == "0.87"
    assert unmoved - moved < (moved - fewer) / 3
    helped = {}
    for kind in ("who", "whom"):
        rotary, repaired, alibi, none = (
            {facts: share[name, kind, facts] for facts in (4, 8, 16)}
            for name in ("rotary", "rotary, YaRN 4", "ALiBi", "none")
        )
        assert 0.28 < 1 - rotary[8] / rotary[4] < 1 / 3
        assert 0 < rotary[16] - none[16] < 0.1
        assert repaired[4] < rotary[4] - 0.1
        helped[kind] = repaired[16] - rotary[16]
        kept = alibi[16] / alibi[4]
        assert kept > 0.7 if kind == "whom" else kept < 0.5
    assert helped["whom"] > 0.3 > 0.15 > helped["who"] > 0


def test_how_far_is_too_far(page):
    """The measured distances are 57, 107, 154 and 220, each within a tenth of the prediction."""
    back = [
        int(number)
        for number in re.findall(r"token +(\d+) back", printed_text(page, "out-reach"))
    ]
    assert back == [57, 107, 154, 220]
    assert np.allclose(np.array(back) / (57 * np.arange(1, 5)), 1, atol=0.1)


def test_the_prediction(page):
    """the bad distance should grow with the factor: 57, 114, 171, 228.

    YaRN doesn't slow pair 0, slows pair 1 by less, and makes all scores larger
    """
    assert [57 * factor for factor in range(1, 5)] == [57, 114, 171, 228]
    for factor in (2.0, 3.0, 4.0):
        slowed, larger = yarn(16, factor=factor, trained_length=48)
        assert larger > 1
        slowing = frequencies(16) / slowed.numpy()
        assert np.isclose(slowing[0], 1)
        assert 1 < slowing[1] < slowing[2] == slowing[2:].max()


def test_without_positions_it_is_no_longer_sure(page):
    """King still comes first, but with less than half of the probability, and the next two are subjects.

    fewer than the model that was trained without positions
    """
    (word, p), *others = printed(page, "out-zero").items()
    assert word == "king"
    assert p < 0.5
    assert {word for word, _ in others} <= {"dog", "fox", "cat"}
    for kind in ("who", "whom"):
        assert page.glued[f"zero_{kind}"] < page.glued[f"none_{kind}"]
