"""Common mistakes at the shell, and the error that each of them gets.

Every refusal goes to standard error behind `coatcheck:`, says what to do, ends with code 1 or 2,
prints no traceback and writes no result.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coatcheck.cli import COMMANDS, GROUPS, main

FILES = {
    "riders.csv": "lat,lon\n31.20,121.40\n31.21,121.41\n31.22,121.42\n",
    "drivers.csv": "lat,lon\n31.20,121.40\n31.25,121.45\n31.22,121.42\n",
    "plane.csv": "x,y\n1,2\n3,4\n",
    "sides.csv": "lat,lon,side\n31.2,121.4,a\n31.3,121.5,b\n31.1,121.4,c\n",
    "one.csv": "lat,lon\n31.2,121.4\n",
    "words.csv": "lat,lon\n31.2,north\n",
    "empty.csv": "",
    "swapped.csv": "lat,lon\n121.4,31.2\n",
    "unclear.csv": "a,b\n1,2\n",
    "line.geojson": json.dumps({"features": [{"geometry": {"type": "LineString"}}]}),
    "note.txt": "hello",
    "bad.json": "{",
    "empty.json": "{}",
    "bad.toml": "[",
    "few.toml": '[shuffler]\nname = "x"\n',
    "typo.toml": '[server]\nname = "x"\nstores = "y"\n',
}
BOTH = ("riders.csv", "drivers.csv")

SIMULATE = [
    (("none.csv",), "cannot read none.csv: No such file or directory"),
    (("note.txt",), "note.txt must end in .csv, .geojson or .json; save the points as one of them"),
    (("empty.csv",), "its first line must name the columns, such as lat,lon"),
    (("words.csv", "drivers.csv"), "words.csv line 2, column lon: 'north' is not a number"),
    (("swapped.csv", "drivers.csv"), "are latitude and longitude swapped?"),
    (("unclear.csv",), "name them, such as --columns lat,lon"),
    (("unclear.csv", "--columns", "a"), "--columns must name two columns, such as lat,lon"),
    (("unclear.csv", "--columns", "a,c"), "has no column 'c'; its columns are a, b"),
    (
        ("line.geojson",),
        "line.geojson feature 1 must be a Point with [longitude, latitude]: Invalid enum",
    ),
    (("riders.csv",), "give one file per group, or --group-by a column"),
    (("riders.csv", "riders.csv"), "two files are both group 'riders'; name one of them"),
    (("sides.csv", "--group-by", "role"), "has no column 'role'; its columns are lat, lon, side"),
    (("sides.csv", "--group-by", "side"), "needs 2 groups of people, but the input has 3"),
    ((*BOTH, "--group-by", "lat"), "`--group-by` needs a single file"),
    (("riders.csv", "plane.csv"), "some files are in degrees and some are not"),
    ((*BOTH, "--task", "matching"), "the task must be least-cost-matching | maximum"),
    (
        (*BOTH, "--task", "maximum-matching"),
        "needs --radius, the distance that counts as near, in metres",
    ),
    ((*BOTH, "--radius", "300"), "leave --radius out, or choose another task"),
    ((*BOTH, "--epsilon", "0"), "`--epsilon` must be a number above 0, usually 0.1 to 3, got '0'"),
    ((*BOTH, "--epsilon", "-1"), "`--epsilon` must be a number above 0"),
    ((*BOTH, "--epsilon", "nan"), "`--epsilon` must be a number above 0"),
    ((*BOTH, "--epsilon", "inf"), "`--epsilon` must be a number above 0"),
    ((*BOTH, "--epsilon", "100"), "epsilon must be at most 64"),
    ((*BOTH, "--delta", "0"), "`delta` must lie between 0 and 1"),
    ((*BOTH, "--delta", "1"), "`delta` must lie between 0 and 1"),
    ((*BOTH, "--box", "31,121"), "`--box` takes 4 numbers separated by commas, such as 31.0,121.2"),
    ((*BOTH, "--box", "31,121,30,122"), "`lo` must be below `hi`"),
    ((*BOTH, "--box", "31.2,121.4,31.21,121.41"), "widen the box, or give `--clamp`"),
    ((*BOTH, "--corrupted", "many"), "`--corrupted` must be a number, or one per group"),
    ((*BOTH, "--corrupted", "1,2,3"), "`--corrupted` must be a number, or one per group"),
    ((*BOTH, "--corrupted", "3"), "corrupted of 3 people leave nobody to protect"),
    (("one.csv", "drivers.csv"), "at least 2 people"),
    (
        ("riders.csv", "--task", "neighbours", "--radius", "-5"),
        "`radius` must be a positive number",
    ),
    (
        ("riders.csv", "--task", "neighbours", "--radius", "5", "--limit", "0"),
        "`limit` must be at least 1",
    ),
]
DEMO = [
    (("taxis",), "must be one of nearby | taxi | friends | standing | learning, got 'taxis'"),
    (("taxi", "--people", "3"), "`--people` must be from 8 to 2,000, got 3"),
    (("taxi", "--people", "1000000"), "for a larger crowd use `coatcheck simulate`"),
    (("taxi", "--epsilon", "0"), "`--epsilon` must be a number above 0"),
    (("taxi", "--data", "none.csv"), "cannot read none.csv: No such file or directory"),
    (("taxi", "--data", "plane.csv"), "name the columns lat and lon"),
    (
        ("taxi", "--data", "sides.csv", "--group-by", "side"),
        "needs two groups, riders and drivers; the file has",
    ),
    (("taxi", "--data", "one.csv"), "too few to hide anybody"),
    (("taxi", "--group-by", "side"), "give the file by `--data`"),
    (("learning", "--data", "riders.csv"), "makes up its own values; leave out `--data`"),
    (("standing", "--settle"), "has no candidates; leave out `--candidates` and `--settle`"),
]

KEYS = ("--key", "note.txt")
PROPOSE = ("terms", "propose", "none.json", *KEYS, "--shuffler", "note.txt", "--board", "note.txt")
JOIN = (
    *("join", "--terms", "bad.json", "--group", "riders", "--value", "1,2", "--epsilon", "1"),
    *("--delta", "1e-6", "--ledger", "l", "--ticket", "t", "--out", "u", "--trust", "note.txt"),
)
TICKET = ("--terms", "bad.json", "--ticket", "none")
PROTOCOL = [
    (("keygen", "server", "--out", "note.txt"), "already exists: remove it or choose another name"),
    (("keygen", "a/b", "--out", "new.key"), "this name or address is not valid"),
    (PROPOSE, "note.txt"),
    (("terms", "sign", "bad.json", *KEYS, "--pledges", "p"), "the signed terms do not decode"),
    (("terms", "check", "none.json"), "cannot read none.json: No such file or directory"),
    (("terms", "check", "bad.json"), "the signed terms do not decode"),
    (JOIN, "note.txt is not a public key file"),
    (("shuffle", "note.txt", "--terms", "bad.json", *KEYS, "--out", "b"), "do not decode"),
    (("answer", "note.txt", "--terms", "bad.json", *KEYS, "--out", "b"), "do not decode"),
    (("collect", *TICKET, "--bulletin", "none"), "the signed terms do not decode"),
    (("write", *TICKET, "--to", "00", "--message", "hi", "--out", "w"), "do not decode"),
    (("read", "note.txt", *TICKET), "the signed terms do not decode"),
    (("ledger", "show", "none"), "there is no ledger at none"),
    (("ledger", "begin", "l", "--epsilon", "0", "--delta", "1e-6"), "a positive number"),
    (("inspect", "note.txt"), "not a file of any kind that this version knows"),
    (("inspect", "none"), "cannot read none: No such file or directory"),
    (("check-task", "none"), "no task is called 'none'; the tasks are download, groups"),
    (("check-task", "nowhere:Task"), "cannot load nowhere:Task: No module named 'nowhere'"),
    (("compare", "--epsilon", "x"), "`--epsilon` takes numbers separated by commas, such as"),
    (("compare", "--domain", "disc9"), "`--domain` must be one of square | line | cube"),
]

NOWHERE = "http://127.0.0.1:9/rounds/00"
TAKE_PART = (
    *("take-part", NOWHERE, "--group", "riders", "--value", "1,2", "--epsilon", "1"),
    *("--delta", "1e-6", "--ledger", "none", "--ticket", "t", "--trust", "note.txt"),
)
LETTERS = (NOWHERE, "--trust", "note.txt", "--ticket", "note.txt")
OPEN = ("--server", "http://127.0.0.1:9", "--token", "note.txt")
SERVICES = [
    (("serve", "shuffler", "--config", "none.toml"), "cannot read none.toml: No such file"),
    (("serve", "shuffler", "--config", "bad.toml"), "bad.toml is not a TOML file"),
    (("serve", "board", "--config", "few.toml"), "has no table [board], only: shuffler"),
    (("serve", "shuffler", "--config", "few.toml"), "missing required field `store`"),
    (("serve", "server", "--config", "typo.toml"), "unknown field `stores`"),
    (("round", "open", "none.json", *OPEN), "cannot read none.json: No such file or directory"),
    (("round", "open", "bad.json", *OPEN), "bad.json is not a JSON object"),
    (("round", "open", "empty.json", *OPEN), "other users can read note.txt: run `chmod 600"),
    (("round", "status", NOWHERE), "check the address, or try later"),
    (("round", "status", "nonsense"), "URL must begin with http://HOST:PORT or https://HOST"),
    (TAKE_PART, "there is no ledger at none"),
    (("letters", "read", *LETTERS[:-1], "none"), "give the address that `take-part` printed"),
    (("letters", "read", *LETTERS), "note.txt is not a public key file"),
    (("letters", "write", *LETTERS, "--to", "zz", "--message", "hi"), "a contact in hexadecimal"),
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def _type(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def _refused(result: Result, sentence: str) -> None:
    assert result.exit_code in {1, 2}, result.output
    assert result.stdout == ""
    assert sentence in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("coatcheck: ")]
    assert len(lines) == 1
    message = lines[0].removeprefix("coatcheck: ")
    assert not message.endswith(".")
    assert "Traceback" not in result.stderr
    assert sorted(path.name for path in Path().iterdir()) == sorted(FILES)


def test_simulate_says_what_to_do() -> None:
    """A wrong file, column, group, task or number gets its own error."""
    for arguments, sentence in SIMULATE:
        _refused(_type("simulate", *arguments), sentence)


def test_demo_says_what_to_do() -> None:
    """The error comes before any process is started."""
    for arguments, sentence in DEMO:
        _refused(_type("demo", *arguments), sentence)


def test_every_step_over_files_says_what_is_wrong() -> None:
    """A missing, foreign or broken file, a name in use, a wrong number."""
    for arguments, sentence in PROTOCOL:
        _refused(_type(*arguments), sentence)


def test_services_and_their_clients_say_what_is_wrong() -> None:
    """Settings, addresses, tokens and keys that are missing, foreign or misspelt."""
    for arguments, sentence in SERVICES:
        _refused(_type(*arguments), sentence)


def test_every_command_explains_itself() -> None:
    """`--help` ends with code 0, and its first words are a sentence."""
    for command in COMMANDS:
        result = _type(command, "--help")
        assert result.exit_code == 0
        first = result.stdout.split("\n\n")[1].strip()
        assert first[0].isupper()
        assert len(first.split()) > 3


def test_an_unknown_option_is_refused_with_help_at_hand() -> None:
    """Click's own sentence points to `--help`, whatever the command."""
    for command in COMMANDS:
        result = _type(command, "--nonsense")
        assert result.exit_code == 2
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        assert "--help" in result.stderr


def test_without_the_extra_services_are_listed_and_say_what_they_need() -> None:
    """`pip install coatcheck` alone has every other command, and `--help` lists them all."""
    code = (
        "import sys; sys.modules['httpx2'] = None; sys.modules['uvicorn'] = None; "
        "from coatcheck.cli import main; main()"
    )
    for arguments, expected, told in (
        (["--help"], 0, "take-part"),
        (["round", "status", "http://127.0.0.1:9"], 2, "pip install 'coatcheck[serve]'"),
        (["serve", "board", "--config", "few.toml"], 2, "pip install 'coatcheck[serve]'"),
    ):
        done = subprocess.run(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == expected
        assert told in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_help_groups_the_commands() -> None:
    """Every command is listed once, under its purpose."""
    shown = _type("--help").stdout
    places = [shown.index(f"{title}:") for title in GROUPS]
    assert places == sorted(places)
    for name in COMMANDS:
        assert len(re.findall(rf"^  {name} ", shown, re.MULTILINE)) == 1


@pytest.mark.parametrize(("typed", "told"), [("takepart", "take-part"), ("ledgr", "ledger")])
def test_a_typing_mistake_gets_a_suggestion(typed: str, told: str) -> None:
    """Nothing runs, and the error names the nearest command."""
    found = _type(typed)
    assert found.exit_code == 2
    assert f"did you mean {told}?" in found.stderr
    assert "--help" in _type("xyzzy").stderr
