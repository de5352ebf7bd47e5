"""The fixture `page`: the page that a file of tests is about, with its cells run."""

import jaxtyping
import matplotlib
import pytest

from tests.pages.reading import page_of

matplotlib.use("svg")


@pytest.fixture(scope="module")
def page(request):
    """Run the page as the build does, without the checks of annotations that tests switch on."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield page_of(request.module.__name__.rpartition("test_")[2]).run()
    jaxtyping.config.update("jaxtyping_disable", False)
