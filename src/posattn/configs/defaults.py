"""What the classes of transformers and diffusers set where a file says nothing.

The numbers are data, `defaults.json`, which tests/nightly/oracles/defaults.py reads out of the classes, as
reads.py beside it does the keys that their models use.
"""

from posattn.configs.data import data

READ = data("defaults.json")
READS = data("reads.json")  # by the models' code
VOCABULARY = {key for known in READ["families"].values() for key in known["values"]}
CLASS_OF = data("classes.json")  # of families that are read by the class of another


def defaults_of(family):
    """The name of the family's class, and its defaults by their keys; None and nothing if it has none."""
    found = READ["families"].get(
        CLASS_OF.get(family, family), {"class": None, "values": {}}
    )
    return found["class"], found["values"]


def origin_of(family):
    """The family's class, and the release of the library that has it."""
    name = defaults_of(family)[0]
    library = "diffusers" if name == family else "transformers"  # which names its own class
    return f"{name}, {library} {READ[library]}"


def read_by(family):
    """The keys that the family's model in transformers reads; None where that is not known."""
    own = READS.get(CLASS_OF.get(family, family))
    return None if own is None else {*own, *READS[""]}
