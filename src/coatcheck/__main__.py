"""`python -m coatcheck.cli`: the command without its installed script."""

from coatcheck.cli import main

# HOUSE-DOC __main__: '`python -m coatcheck`: the same as the command `coatcheck`.'
main(prog_name="coatcheck")

if __name__ == "__main__":
    main()
