"""captum: attributions of a language model's answer to the tokens of its prompt."""

from captum.attr import FeatureAblation, LLMAttribution, TextTokenInput

from tests.nightly.world.wrapped import _small, _words

INSTALL = [
    "numpy==2.4.6 torch==2.13.0",
    "transformers==5.24.0 peft==0.21.2 transformer-lens==4.3.0",
    "trl==1.16.0 sentence-transformers==6.2.0 genlm-backend==0.3.1",
    "captum==0.9.0",
]
PROMPT, ANSWER = "3 14 15 92 65", "26 88 96"


def _attributed(model, **options):
    text = TextTokenInput(PROMPT, _words(), baselines=0)
    method = LLMAttribution(FeatureAblation(model), _words())
    return method.attribute(text, target=ANSWER, **options).token_attr


def _shown(rows):
    for token, row in zip(ANSWER.split(), rows, strict=True):
        print(f"  {token}:", *(f"{x:.2f}" for x in row.tolist()))


def cached_outputs():
    """Captum's `LLMAttribution` is wrong from the second token on, unless `use_cached_outputs=False`."""
    print("by default")
    _shown(_attributed(_small()))
    print("use_cached_outputs=False")
    _shown(_attributed(_small(), use_cached_outputs=False))


def reads_the_text_again():
    """In each step, `LLMAttribution` reads the whole text again, on top of a cache that holds it."""
    model, read = _small(), []
    layer = model.model.layers[0]
    layer.register_forward_pre_hook(lambda _, given: read.append(given[0].shape[1]))
    _attributed(model)
    print("tokens read in the first steps:", *read[:3])
