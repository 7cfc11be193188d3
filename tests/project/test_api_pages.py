"""The reference of the public names: types from the code, exceptions, a running example."""

import inspect
import re
from pathlib import Path

import coatcheck

FOLDER = Path(__file__).parents[2] / "docs/reference/api"
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")))
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
NAMES = {name for names in vars(coatcheck)["_CONTENTS"].values() for name in names}


def test_every_public_name_has_its_section() -> None:
    """Autodoc gives types and arguments; the page adds the exceptions and an example."""
    assert set(SECTIONS) == NAMES
    for name, section in SECTIONS.items():
        assert re.search(rf"^\.\. auto(class|function):: coatcheck\.{name}$", section, re.MULTILINE)
        assert re.search(r"^\*Raise[sd]\*", section, re.MULTILINE), name
        assert "```python\n" in section, name


def test_a_seed_has_one_name() -> None:
    """Randomness is passed as `entropy`; only `seeded` takes a `seed`."""
    for name in NAMES - {"seeded"}:
        thing = getattr(coatcheck, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            continue
        given = inspect.signature(thing).parameters
        assert not {"seed", "rng", "random_state"} & set(given), name
        if "entropy" in given and not inspect.isclass(thing):
            assert "int" in str(given["entropy"].annotation), name
