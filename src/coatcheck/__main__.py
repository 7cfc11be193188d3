"""`python -m coatcheck`: the same as the command `coatcheck`."""

from coatcheck.cli import main

main(prog_name="coatcheck")
