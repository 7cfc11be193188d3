"""`coatcheck tokens`: a shuffler admits the tokens that it makes."""

import hashlib
from pathlib import Path

from click.testing import CliRunner

from coatcheck.cli import main
from coatcheck.services.shuffler.admission import TokenAdmission
from coatcheck.services.web.routing import Problem
from support.rounds import SmallRound


def test_every_token_is_admitted_and_no_place_links_the_two_files(tmp_path: Path) -> None:
    """The tokens are for their owner only, differ, and their hashes are listed in order."""
    out, hashes = tmp_path / "people", tmp_path / "hashes"
    asked = ["tokens", "50", "--out", str(out), "--hashes", str(hashes)]
    assert CliRunner().invoke(main, asked).exit_code == 0
    made, known = out.read_text().split(), hashes.read_text().split()
    assert (len(set(made)), out.stat().st_mode & 0o777) == (50, 0o600)
    assert known == sorted(hashlib.sha256(token.encode()).hexdigest() for token in made)
    admission, round_ = TokenAdmission.read(hashes), SmallRound().round

    def admitted(token: str) -> bool:
        scope = {"headers": [(b"coatcheck-token", token.encode())]}
        try:
            return admission.admit(scope, round_, hop=0) is not None
        except Problem:
            return False

    assert all(map(admitted, made))
    assert not any(map(admitted, (*known, "", made[0][:-1])))
    assert CliRunner().invoke(main, asked).exit_code == 2
    assert CliRunner().invoke(main, [*asked[:1], "0", *asked[2:]]).exit_code == 2
