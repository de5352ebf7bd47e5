"""How fast we are, beside others: `nox -s bench`, or `nox -s bench -- rotate` for a part."""
