"""TRL: the log-probabilities that GRPO trains on."""

import tempfile

import torch
from trl import GRPOConfig, GRPOTrainer

from tests.nightly.world.wrapped import _small, _words

INSTALL = [
    "numpy==2.4.6 torch==2.13.0",
    "transformers==5.24.0 peft==0.21.2 transformer-lens==4.3.0",
    "captum==0.9.0 sentence-transformers==6.2.0 genlm-backend==0.3.1",
    "trl==1.16.0",
]


def _trainer(model):
    from datasets import Dataset

    with tempfile.TemporaryDirectory() as folder:
        options = {"use_cpu": True, "report_to": "none", "bf16": False}
        return GRPOTrainer(
            model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=GRPOConfig(
                folder, per_device_train_batch_size=2, num_generations=2, **options
            ),
            train_dataset=Dataset.from_list([{"prompt": "3 14"}]),
            processing_class=_words(),
        )


def _scored(model, pads):
    """The log-probabilities of three tokens after a prompt of two, behind padding."""
    ids = torch.tensor([[0] * pads + [3, 14, 15, 92, 65]])
    mask = (torch.arange(5 + pads)[None] >= pads).long()
    with torch.no_grad():
        found = _trainer(model)._get_per_token_logps_and_entropies(model, ids, mask, 3)[0]
    return found[0].tolist()


def learned_positions():
    """With learned positions (GPT-2), TRL's GRPO scores an answer by the padding of its prompt, too."""
    for kind in ("gpt2", "llama"):
        for pads in (0, 8):
            scores = (f"{score:.2f}" for score in _scored(_small(kind), pads))
            print(f"{kind}, {pads} pads:", *scores)
