"""How exact we are, beside others: `nox -s record -- numerics`, or `-- numerics rotate` for a part."""
