"""How exact we are, beside others: `nox -s numerics`, or `nox -s numerics -- rotate` for a part."""
