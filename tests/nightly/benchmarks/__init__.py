"""How fast we are, beside others: `nox -s record -- bench`, or `nox -s record -- bench rotate` for a part."""
