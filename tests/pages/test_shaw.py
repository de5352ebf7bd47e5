"""Vectors for offsets: Shaw and Transformer-XL."""

import numpy as np

from posattn import reference
from posattn.reference import attention_weights
from posattn.reference import sinusoidal_encoding as sinusoid

PLACES = np.arange(6)
DRAWN = np.random.default_rng(1)
Q, K, V = DRAWN.normal(size=(3, 6, 4))  # a head of width 4, six tokens


def softmax(scores):
    """The softmax of each row."""
    e = np.exp(scores)
    return e / e.sum(-1, keepdims=True)


def test_eq_shaw():
    r"""$$ s_{ij} = \frac{\mathbf{q}_i^\top \big(\mathbf{k}_j + \mathbf{a}^{(k)}_{\operatorname{clip}(j-i)}\big)}{\sqrt{d_h}}, \qquad \mathbf{y}_i = \sum_{j=0}^{n-1} \alpha_{ij} \big(\mathbf{v}_j + \mathbf{a}^{(v)}_{\operatorname{clip}(j-i)}\big) . $$"""
    m = 2
    shaw = reference.ShawRelative.init(np.random.default_rng(0), m, 4)
    q, k = Q[None, None], K[None, None]  # one text, one head
    bias = shaw.scores(q, k, PLACES, PLACES)
    weights = attention_weights(q, k, bias=bias)
    y = (weights @ V + shaw.values(weights, PLACES, PLACES))[0, 0]
    for i in PLACES:
        rows = [m + max(-m, min(m, j - i)) for j in PLACES]
        alpha = softmax((K + shaw.key_table[rows]) @ Q[i] / np.sqrt(4))
        assert np.allclose(weights[0, 0, i], alpha)
        assert np.allclose(y[i], alpha @ (V + shaw.value_table[rows]))


def test_eq_transformer_xl():
    r"""$$ \begin{aligned} s_{ij} = \frac{1}{\sqrt{d_h}}\Big(&\underbrace{\mathbf{q}_i^\top\mathbf{k}_j}_{\text{content}} + \underbrace{\mathbf{q}_i^\top\mathbf{r}_{i-j}}_{\text{distance asked for}} \\ &+ \underbrace{\mathbf{u}^\top\mathbf{k}_j}_{\text{favored content}} + \underbrace{\mathbf{u}'^\top\mathbf{r}_{i-j}}_{\text{favored distance}}\Big) . \end{aligned} $$"""
    u, u2, W_r = (DRAWN.normal(size=(rows, 4)) for rows in (1, 1, 8))
    xl = reference.TransformerXLBias(u, u2, W_r)
    bias = xl.scores(Q[None, None], K[None, None], PLACES, PLACES)
    scores = Q @ K.T / np.sqrt(4) + bias[0, 0]
    for i in PLACES:
        for j in PLACES:
            r = W_r.T @ sinusoid(np.array([i - j]), 8)[0]
            s = (Q[i] @ K[j] + Q[i] @ r + u[0] @ K[j] + u2[0] @ r) / np.sqrt(4)
            assert np.isclose(scores[i, j], s)


def test_shaw_by_hand():
    table = np.array([[0.0, 1.0], [0.0, 0.0], [1.0, -1.0]])  # offsets -1, 0 and 1
    query, keys = np.array([[[1.0, 2.0]]]), np.array([[[1.0, 0.0]] * 3])
    for start in (0, 1000):
        bias = reference.ShawRelative(table).scores(
            query, keys, np.array([start + 1]), start + np.arange(3)
        )
        scores = (query @ keys.mT / np.sqrt(2) + bias)[0, 0]
        assert scores.round(2).tolist() == [2.12, 0.71, 0]
        assert softmax(scores).round(2).tolist() == [0.73, 0.18, 0.09]
