"""`python -m coatcheck`: the command `coatcheck` without its installed script."""

from coatcheck.cli import main

if __name__ == "__main__":
    main(prog_name="coatcheck")
