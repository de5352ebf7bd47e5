"""How exact we are, beside others: `nox -s record -- numerics`, or `nox -s record -- numerics rotate` for a part."""
