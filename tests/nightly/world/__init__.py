"""What other software really does: a file each, run where it is installed; `nox -s record -- world`."""
