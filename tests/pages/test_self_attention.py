"""Self-attention."""

import inspect
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import posattn.jax
import posattn.torch
from posattn import reference
from posattn.reference import (
    MultiHeadAttention,
    attention_weights,
    scaled_dot_product_attention,
)
from tests.pages.reading import equations

# dog, bites, man, and what they give
X = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1.0]])
W_Q = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
Q, K, V = X @ W_Q, X * [2, 2, 1, 1], X * [1, 1, 2, 2]
WEIGHTS = attention_weights(Q, K)
FIVE = np.random.default_rng(2).normal(size=(5, 3))  # tokens of width 3


def five_tabs(page):
    """The layer of the five tabs in float64, its mask, its tokens, and those with other padding."""
    layer = MultiHeadAttention(*page.torch.drawn.values(), num_heads=5, dropout_rate=0.5)
    mask = reference.length_mask(page.torch.lengths, 4)
    return layer, mask, 1.0 * page.torch.tokens, 1.0 * page.torch.other


def changed(one, two):
    """Which outputs differ."""
    return ~np.isclose(one, two).all(-1)


def test_eq_three_tokens(page):
    r"""$$ \begin{gathered} \mathbf{X} = \begin{bmatrix} 1 & 0 & 1 & 0 \\ 0 & 1 & 0 & 0 \\ 1 & 0 & 0 & 1 \end{bmatrix} \begin{matrix} \text{dog} \\ \text{bites} \\ \text{man} \end{matrix} \\[1ex] \mathbf{W}^{(q)} = \begin{bmatrix} 0 & 1 & 0 & 0 \\ 1 & 0 & 1 & 0 \\ 0 & 0 & 1 & 0 \\ 0 & 0 & 0 & 1 \end{bmatrix} \end{gathered} $$"""
    shown = re.findall(
        r"begin\{bmatrix\}(.*?)\\end", equations(page.text)["eq_three-tokens"]
    )
    for latex, here, there in zip(
        shown, (X, W_Q), (page.torch.X, page.torch.W_q), strict=True
    ):
        matrix = [[float(n) for n in row.split("&")] for row in latex.split(r"\\")]
        assert np.array_equal(matrix, here)
        assert np.array_equal(matrix, there)


def test_what_the_tokens_ask_for(page):
    """The first row, for instance, has its 1 in the column for verbs, so a noun asks for a verb. A verb
    asks for a noun and for an animal, an animal asks for an animal, and a human for a human. If a token
    has two properties, its two rows add up

    dog, a noun and an animal, asks for a verb and an animal: its query is $(0, 1, 1, 0)$
    """
    noun, verb, animal, human = np.eye(4)
    assert np.array_equal(W_Q, [verb, noun + animal, animal, human])
    assert np.array_equal(Q[0], W_Q[0] + W_Q[2])
    assert np.array_equal(page.torch.Q, Q)
    assert np.array_equal(Q, [[0, 1, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1]])


def test_the_keys_and_values_of_the_walk(page):
    r"""$\mathbf{W}^{(k)}$ doubles the first two numbers, so a match in noun or verb counts twice as much as
    one in animal or human. $\mathbf{W}^{(v)}$ doubles the last two, because what bites most needs to hear
    is whether an animal or a human takes part.
    """
    assert np.array_equal(page.torch.K, X * [2, 2, 1, 1])
    assert np.array_equal(page.torch.V, X * [1, 1, 2, 2])


def test_weights_sum_to_1(page):
    """a softmax turns each row of scores into weights that sum to 1.

    the weights say how much of each value goes into the output
    """
    assert np.allclose(page.torch.weights.sum(axis=1), 1)
    assert np.allclose(page.torch.weights, WEIGHTS)
    assert np.allclose(page.torch.Y, WEIGHTS @ V)


def test_following_bites(page):
    r"""Bites comes in as $(0, 1, 0, 0)$, a verb and nothing more, and its query asks for a noun and an animal.

    so its key matches with $2 + 1 = 3$, which the scaling by $\sqrt 4$ turns into a score of 1.5. Man is a
    noun but not an animal, so it matches with 2 and gets a score of 1. Bites itself is neither, so its
    score is 0.

    0.55 for dog, 0.33 for man, and 0.12 for bites itself

    The output is 0.55 of what dog has to say, 0.12 of bites and 0.33 of man, which is
    $(0.88, 0.12, 1.09, 0.66)$. Read it as an answer: a noun is around, and an animal more than a human.
    """
    assert np.array_equal(page.torch.X[1], [0, 1, 0, 0])
    assert np.array_equal(Q[1], [1, 0, 1, 0])
    assert Q[1] @ K[0] == 2 + 1 == 3
    assert Q[1] @ K[2] == 2
    assert np.allclose(page.torch.scores[1], [3 / 4**0.5, 0, 1])
    assert np.allclose(page.torch.scores[1], [1.5, 0, 1])
    assert np.allclose(WEIGHTS[1], [0.55, 0.12, 0.33], atol=0.005)
    assert np.allclose((WEIGHTS @ V)[1], [0.88, 0.12, 1.09, 0.66], atol=0.005)
    for word, key, weight in (("dog", "2. 0. 1. 0.", 0.55), ("man", "2. 0. 0. 1.", 0.33)):
        assert f"{word:5} key [{key}]" in page.printed
        assert f"weight {weight}" in page.printed


def test_frost_has_no_teeth(page):
    """The third number is now 0, because there is no animal left to supply it. The fourth has grown, because
    frost and man match the query equally well, so man gets more weight than it got next to dog. The same
    vector went in, and a different one came out, which is what we wanted.
    """
    frost = np.stack([[1, 0, 0, 0], *X[1:]])
    weights = attention_weights(frost @ W_Q, frost * [2, 2, 1, 1])
    there = weights @ (frost * [1, 1, 2, 2])
    assert weights[1, 0] == weights[1, 2] > WEIGHTS[1, 2]
    assert there[1, 3] > (WEIGHTS @ V)[1, 3]
    assert np.allclose(page.torch.Y_frost, there)
    assert there[1, 2] == 0
    assert not np.allclose(there[1], (WEIGHTS @ V)[1], atol=0.01)
    assert np.array_equal(frost[1], X[1])


def test_eq_self_attention(page):
    r"""$$ \mathbf{y}_i = f\big(\mathbf{x}_i, (\mathbf{x}_0, \mathbf{x}_0), \ldots, (\mathbf{x}_{n-1}, \mathbf{x}_{n-1})\big) \in \mathbb{R}^d, $$

    Its query is $\mathbf{x}_i$, and every token is the key and the value of one pair.
    """

    def f(query, *pairs):
        terms = [np.exp(sum(query * k) / 3**0.5) for k, _ in pairs]
        return sum(e * v for e, (_, v) in zip(terms, pairs, strict=True)) / sum(terms)

    outputs = [f(x, *[(token, token) for token in FIVE]) for x in FIVE]
    assert np.allclose(outputs, scaled_dot_product_attention(FIVE, FIVE, FIVE))


def test_without_matrices(page):
    """Bites has no property in common with dog or man, so both score 0. It attends most to itself

    Without matrices a token can only find tokens that resemble it, whereas with them a verb can look for a
    noun, and there is something to learn.
    """
    assert (X @ X.T)[1, [0, 2]].tolist() == [0, 0]
    weights = attention_weights(X, X)[1]
    assert weights.argmax() == 1
    assert (
        "attends to dog {:.2f}, to bites {:.2f}, to man {:.2f}".format(*weights)
        in (page.printed.split("without matrices,\nbites ")[1])
    )


def test_who_attends_to_whom(page):
    """The nouns dog and man attend most to bites, because a noun asks for a verb, while the verb attends
    most to dog. The library's layer gives the same outputs to six digits.
    """
    assert WEIGHTS.argmax(axis=1).tolist() == [1, 0, 1]
    assert "largest difference from the library: 0.000000\n" in page.printed
    for word, row in zip(("dog", "bites", "man"), WEIGHTS, strict=True):
        shown = "attends to dog {:.2f}, to bites {:.2f}, to man {:.2f}".format(*row)
        assert f"{word:5} {shown}\n" in page.printed


def test_eq_self_attention_projections(page):
    r"""$$ \mathbf{Q} = \mathbf{X}\mathbf{W}^{(q)}, \;\; \mathbf{K} = \mathbf{X}\mathbf{W}^{(k)}, \;\; \mathbf{V} = \mathbf{X}\mathbf{W}^{(v)}. $$

    These three enter scaled dot-product attention

    Every token is multiplied by three matrices, which gives its query, its key and its value
    """
    matrices = np.random.default_rng(1).normal(size=(3, 3, 3))
    q, k, v = (
        np.array([[sum(x[a] * w[a, c] for a in range(3)) for c in range(3)] for x in FIVE])
        for w in matrices
    )
    layer = MultiHeadAttention(*matrices, np.eye(3), num_heads=1)
    assert np.allclose(scaled_dot_product_attention(q, k, v), layer(FIVE, FIVE, FIVE))


def test_a_sequence_of_one_token(page):
    """Every token is compared with all tokens, itself included. In a sequence of one token, that token
    gives itself the weight 1.
    """
    assert np.allclose(attention_weights(Q[:1], K[:1]), 1)


def test_what_the_librarys_layer_adds(page):
    """each head is such a layer of a smaller width, and a fourth matrix joins their outputs

    The library's layer also takes masks, biases, a rotation of queries and keys, and dropout.
    """
    made = inspect.signature(MultiHeadAttention).parameters.keys()
    assert made >= {"num_heads", "output_weight", "bias", "rotate", "dropout_rate"}
    called = inspect.signature(MultiHeadAttention.__call__).parameters.keys()
    assert "mask" in called


def test_training_finds_the_product(page):
    r"""take 64 random sentences of five tokens

    It takes 2000 steps down the gradient of the mean squared error.

    By step 2000 the error is 0 to six digits, so the new layer does what ours does.

    It found our $\mathbf{W}^{(v)}$, and it found our product $\mathbf{W}^{(q)}\mathbf{W}^{(k)\top}$. But its
    query for bites doesn't say "a noun and an animal" as ours does.

    Multiply $\mathbf{W}^{(q)}$ by any invertible matrix, undo it in $\mathbf{W}^{(k)}$, and no score
    changes.
    """
    p = page.torch
    W_K, W_V = np.diag([2.0, 2, 1, 1]), np.diag([1.0, 1, 2, 2])
    assert p.sentences.shape == (64, 5, 4)
    assert np.unique(p.sentences).tolist() == [0, 1]
    assert "step 2000: mean squared error 0.000000\n" in page.printed
    assert (p.error**2).mean() < 1e-8
    assert np.allclose(p.new_v, W_V, atol=1e-3)
    assert np.allclose(p.new_q @ p.new_k.T, W_Q @ W_K.T, atol=1e-3)
    assert np.corrcoef(X[1] @ p.new_q, Q[1])[0, 1] < 0.5
    turn = np.random.default_rng(0).normal(size=(4, 4))
    queries, keys = X @ (W_Q @ turn), X @ (W_K @ np.linalg.inv(turn).T)
    assert np.allclose(queries @ keys.T, Q @ K.T)


def test_the_gradients_of_the_training(page):
    """The gradients are those of scaled_dot_product, written out

    the gradient of each output, up to a factor
    """
    sentences, wanted = page.torch.sentences[:3], page.torch.wanted[:3]
    start = np.random.default_rng(5).normal(size=(3, 4, 4)) / 2
    q, k, v = torch.tensor(start, requires_grad=True)
    x = torch.tensor(sentences)
    y = torch.softmax((x @ q) @ (x @ k).mT / 2, -1) @ (x @ v)
    loss = ((y - torch.tensor(wanted)) ** 2).mean()
    by_torch = [g.numpy() for g in torch.autograd.grad(loss, (q, k, v))]

    Q3, K3, V3 = (sentences @ w for w in start)
    a = attention_weights(Q3, K3)
    y = a @ V3
    g = (y - wanted) / 5
    g_scores = a * (g @ V3.mT - (g * y).sum(-1, keepdims=True)) / 2
    by_hand = [
        (sentences.mT @ g_scores @ K3).mean(0),
        (sentences.mT @ g_scores.mT @ Q3).mean(0),
        (sentences.mT @ a.mT @ g).mean(0),
    ]
    for one, two in zip(by_torch, by_hand, strict=True):
        assert np.allclose(2 * two / 4, one)  # the mean is over 3 * 5 * 4 numbers
    code = next(c.code for c in page.cells if "g_scores = " in c.code)
    for line in ("sentences.mT @ g_scores @ k", "sentences.mT @ a.mT @ g)"):
        assert line in code


def test_norms(page):
    """LayerNorm shifts and scales the numbers of a token to mean 0 and standard deviation 1

    only scales them, to a root mean square of 1, and leaves the mean where it falls

    Both then multiply each number by a learned gain

    The norm here is LayerNorm
    """
    assert np.allclose(page.torch.normed.mean(-1), 0)
    assert np.allclose(page.torch.normed.std(-1), 1)
    tokens = torch.from_numpy(FIVE)
    layer, rms = (
        norm(3, eps=1e-12).double() for norm in (torch.nn.LayerNorm, torch.nn.RMSNorm)
    )
    shifted, scaled = layer(tokens).detach().numpy(), rms(tokens).detach().numpy()
    assert np.allclose([shifted.mean(-1), shifted.std(-1) - 1], 0)
    assert np.allclose((scaled**2).mean(-1), 1)
    ratios = scaled / FIVE
    assert np.allclose(ratios, ratios[:, :1])  # one factor for a token, and no shift
    assert abs(scaled.mean(-1)).min() > 0.01
    assert layer.weight.shape == rms.weight.shape == (3,)
    both = page.torch.both
    theirs = torch.nn.functional.layer_norm(torch.from_numpy(both), (4,), eps=0.0)
    assert np.allclose(theirs, page.torch.normed)


def test_a_rotation_between_the_matrices(page):
    """The rotation comes between the two matrices, so the score of a pair also depends on how far apart
    its tokens are. The product then gives the scores only of tokens that share a position, such as a
    token and itself.
    """
    places = np.arange(6)
    q = np.repeat(Q[1:2], 6, axis=0)  # one query and one key at six positions
    k = np.repeat(K[:1], 6, axis=0)
    scores = reference.rotate(q, places) @ reference.rotate(k, places).T
    assert np.allclose(scores.diagonal(), X[1] @ W_Q @ np.diag([2, 2, 1, 1]) @ X[0])
    assert np.allclose(scores[1:, 1:], scores[:-1, :-1])  # the distance decides
    assert not np.allclose(scores, scores[0, 0])


def test_eq_transformer_block(page):
    r"""$$ \begin{aligned} \mathbf{Z} &= \mathbf{X} + a(\operatorname{norm}(\mathbf{X})), \\ \text{output} &= \mathbf{Z} + g(\operatorname{norm}(\mathbf{Z})) . \end{aligned} $$

    two matrices with a nonlinearity between them
    """
    block = torch.nn.TransformerEncoderLayer(
        4, 1, 16, dropout=0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    p = {name: value.detach().numpy() for name, value in block.named_parameters()}
    projections = p["self_attn.in_proj_weight"].reshape(3, 4, 4).mT
    attention = MultiHeadAttention(
        *projections, p["self_attn.out_proj.weight"].T, num_heads=1
    )

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def a(x):
        return attention(x, x, x)

    def g(x):
        wide = np.maximum(x @ p["linear1.weight"].T + p["linear1.bias"], 0)
        return wide @ p["linear2.weight"].T + p["linear2.bias"]

    Z = X + a(norm(X))
    output = Z + g(norm(Z))
    assert np.allclose(output, block(torch.from_numpy(X)).detach().numpy())


def test_tokens_meet_in_self_attention_only(page):
    """Tokens meet only in self-attention, and the other parts treat each token by itself.

    The outputs of norm and feed-forward change only at token 2, the word that was replaced, whereas
    those of self-attention change at every token.

    A transformer block adds the result to the token, and a feed-forward network then works on each token
    by itself.
    """
    for part, tokens in (
        ("norm", [2]),
        ("self-attention", [0, 1, 2]),
        ("feed-forward", [2]),
    ):
        shown = str(np.array(tokens))
        assert f"{part:14} changes at the tokens {shown}\n" in page.printed


def test_the_batch_of_the_five_tabs(page):
    """The batch has 2 sequences of 4 tokens, width 100, and the layer has 5 heads. Only the first 3
    tokens of the first sequence and the first 2 of the second are real, and the rest is padding.

    The array other holds the same real tokens with different padding, so an output that changes from one
    to the other has seen the padding.
    """
    assert page.torch.tokens.shape == (2, 4, 100)
    assert (~page.torch.padding).sum(1).tolist() == [3, 2]
    differ = (page.torch.other != page.torch.tokens).any(-1)
    assert np.array_equal(differ, page.torch.padding)


def test_the_mask_hides_padding(page):
    """With the mask, the padding may hold anything, and no output changes. Without the mask, all 8
    outputs change, because every token attends to the padding.
    """
    layer, mask, x, z = five_tabs(page)
    assert not changed(layer(x, z, z, mask=mask), layer(x, x, x, mask=mask)).any()
    assert changed(layer(x, z, z), layer(x, x, x)).all()
    assert changed(layer(x, z, z), layer(x, x, x)).size == 8


def test_padding_still_asks(page):
    """In the last line the 3 padded tokens change as queries too, so their own outputs change"""
    layer, mask, x, z = five_tabs(page)
    differ = changed(layer(z, z, z, mask=mask), layer(x, x, x, mask=mask))
    assert np.array_equal(differ, page.torch.padding)
    assert differ.sum() == 3


def test_without_rng_nothing_is_dropped(page):
    """The dropout rate is 0.5, so how can all five print the same digits? In this library
    dropout acts only in a call that gets rng, in PyTorch as in JAX, and no call above does

    So eval() isn't what turns it off, and only avoids a warning, because a PyTorch layer that is still
    in train mode warns when a call gets no rng.
    """
    layer, mask, x, _ = five_tabs(page)
    for out in (page.torch.out, page.jax.out):
        assert np.allclose(out, layer(x, x, x, mask=mask), atol=1e-5)
    theirs = posattn.torch.MultiHeadAttention(100, 5, dropout_rate=0.5)
    theirs.load_state_dict(
        {f"{k}.weight": torch.from_numpy(w.T) for k, w in page.torch.drawn.items()}
    )
    float_x = torch.from_numpy(page.torch.tokens)
    hide = posattn.torch.length_mask(torch.from_numpy(page.torch.lengths), 4)
    with pytest.warns(UserWarning, match="drops nothing without rng"):
        trained = theirs.train()(float_x, mask=hide)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = theirs.eval()(float_x, mask=hide)
    assert torch.equal(trained, quiet)
    assert not torch.allclose(theirs(float_x, mask=hide, rng=0), quiet)  # in eval mode
    weights = {name: jnp.asarray(value) for name, value in page.jax.matrices.items()}
    twin = posattn.jax.MultiHeadAttention(**weights, num_heads=5, dropout_rate=0.5)
    jax_x = jnp.asarray(page.torch.tokens)
    assert not np.allclose(twin(jax_x, rng=jax.random.key(0)), twin(jax_x))
    generator = np.random.default_rng(0)
    assert not np.allclose(
        page.jax.out, layer(x, x, x, mask=mask, rng=generator), atol=1e-5
    )


def test_a_score_for_each_pair(page):
    """The price is a score for each pair of tokens, $n^2$ of them"""
    assert page.torch.scores.shape == (3, 3)
    assert page.torch.A.shape == (5, 5)


def test_the_two_the(page):
    """with a row of zeros for the

    The two the have the same row and the same column.

    a the asks for nothing, so its weights are the same for every token

    The two columns of the are equal as well, so no other token can tell the the of the dog from the the
    of the man.
    """
    zero = 0 * X[0]
    sentence = np.stack([zero, X[0], X[1], zero, X[2]])
    A = attention_weights(sentence @ W_Q, sentence * [2, 2, 1, 1])
    assert np.allclose(page.torch.A, A)
    assert np.allclose(A[[0, 3]], 0.2)
    assert np.allclose(A[:, 0], A[:, 3])
    assert A[2].argmax() == 1


def test_a_mask_tested_on_ones(page):
    """a test that passes even if the mask is ignored. The tokens are equal, so their values
    are equal too, and every weighted mean of equal values is that value.
    """
    layer, mask, x, _ = five_tabs(page)
    ones = np.ones_like(x)
    assert np.allclose(layer(ones, ones, ones, mask=mask), layer(ones, ones, ones))


def test_the_diagonal_masked(page):
    """a sequence of one token gets zeros, and no token can use its own value"""
    one = np.ones((1, 4))
    assert not scaled_dot_product_attention(
        one, one, one, mask=~np.eye(1, dtype=bool)
    ).any()
    others = attention_weights(Q, K, mask=~np.eye(3, dtype=bool))
    assert not np.diag(others).any()


def test_what_is_cheaper_for_long_inputs(page):
    """For long inputs in which only neighbors matter, a convolution or a window is cheaper"""
    attention = reference.self_attention_operations
    convolution = reference.convolution_operations
    cheaper = [attention(n, 64) > convolution(n, 64, 9) for n in (16, 4096)]
    assert cheaper == [False, True]
    for n in (32, 4096):
        assert reference.window_mask(n, n, 9).sum() < 17 * n < n * n


def test_what_the_man_asks(page):
    """Man is a noun and a human, so its query is $(0, 1, 0, 1)$

    The dot products with the three keys are 0, 2 and 1, and the scores are 0, 1 and 0.5.
    """
    assert np.array_equal(Q[2], [0, 1, 0, 1])
    assert np.array_equal((Q @ K.T)[2], [0, 2, 1])
    assert np.allclose(page.torch.scores[2], [0, 1, 0.5])
    assert f"weights of man: {WEIGHTS[2].round(2)}\n" in page.printed
    dog, bites, man = WEIGHTS[2]
    shown = f"to dog {dog:.2f}, to bites {bites:.2f}, to man {man:.2f}"
    assert f"man   attends {shown}\n" in page.printed


def test_man_bites_dog(page):
    """in man bites dog the word bites gets exactly the output that it has in dog bites man

    The rows trade places, and in scores and weights the columns do too, but each word has the output
    that it had before.
    """
    assert np.allclose(page.torch.outputs[::-1], WEIGHTS @ V)
    turned = attention_weights(Q[::-1], K[::-1])
    assert np.allclose(turned, WEIGHTS[::-1, ::-1])


def test_a_symmetric_layer(page):
    r"""This is symmetric for all $\mathbf{X}$ if and only if $\mathbf{W}^{(q)}\mathbf{W}^{(k)\top}$ is
    symmetric, for example if the two matrices are equal.

    The weights need not be symmetric, because each row is divided by its own sum.
    """
    scores, weights = page.torch.s, page.torch.a
    assert np.array_equal(scores, Q @ Q.T / 2)
    assert np.array_equal(scores, scores.T)
    assert not np.allclose(weights, weights.T)


def test_ones_in_disguise(page):
    """Find tokens that are not all equal

    Then all values of a sequence are equal, and so is every weighted mean of them, whatever the mask
    hides.
    """
    assert np.allclose(page.torch.hidden, page.torch.opened)
    assert not np.allclose(page.torch.repeated[0], page.torch.repeated[1])


def test_with_a_causal_mask(page):
    """The weights above the diagonal become zero. The others in a row are all multiplied by the same
    factor, so that they sum to 1 again.
    """
    causal = attention_weights(Q, K, causal=True)
    lower = np.tril(WEIGHTS)
    assert np.allclose(causal, lower / lower.sum(axis=1, keepdims=True))
    assert np.array_equal(causal == 0, ~np.tri(3, dtype=bool))
    assert f"{causal.round(2)}\n" in page.printed
