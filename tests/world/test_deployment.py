"""The deployment files agree with the program: what can be checked without containers."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import psycopg
import pytest
import yaml

from coatcheck.cli import COMMANDS
from coatcheck.services.board.store import BoardStore
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.settings import (
    BoardSettings,
    RelaySettings,
    ServerSettings,
    Settings,
    ShufflerSettings,
    WitnessSettings,
    read_settings,
)
from support.postgresql import Postgres

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "deploy" / "coatcheck.toml"
KINDS: dict[str, type[Settings]] = {
    "shuffler": ShufflerSettings,
    "server": ServerSettings,
    "board": BoardSettings,
}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """Read the services of compose.yaml."""
    document = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = document["services"]
    assert set(document["volumes"]) >= _volumes(found)
    return found


def _volumes(services: dict[str, dict[str, Any]]) -> set[str]:
    mounted = [mount for service in services.values() for mount in service.get("volumes", ())]
    return {mount.split(":")[0] for mount in mounted if not mount.startswith(".")}


@pytest.mark.parametrize("role", KINDS)
def test_a_role_runs_the_command_with_its_own_settings(
    services: dict[str, dict[str, Any]], role: str
) -> None:
    """The settings are read by the program itself, and the ports are the published ones."""
    settings = read_settings(SETTINGS, role=role, kind=KINDS[role])
    assert services[role]["command"] == ["serve", role, "--config", "/deploy/coatcheck.toml"]
    port = settings.listen.rpartition(":")[2]
    assert services[role]["network_mode"] == "service:postgres"
    assert f"127.0.0.1:{port}:{port}" in services["postgres"]["ports"]
    assert settings.url == f"http://127.0.0.1:{port}"
    assert settings.store.startswith("postgresql://")
    assert urlsplit(settings.store).hostname == "127.0.0.1"


def test_the_roles_find_each_other(services: dict[str, dict[str, Any]]) -> None:
    """Every address that a role is told is the one that another role has."""
    tables = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    own = {role: table["url"] for role, table in tables.items()}
    assert tables["server"]["shufflers"] == [own["shuffler"]]
    assert tables["server"]["board"] == own["board"]
    assert tables["relay"]["gateways"] == [own["shuffler"], own["board"]]
    assert tables["board"]["witnesses"] == [own["witness"]]
    assert services["people"]["environment"]["RELAY"] == own["relay"]


def test_the_relay_has_no_keys_and_no_database(services: dict[str, dict[str, Any]]) -> None:
    """It runs with its settings and a folder for public key lists; nothing of a role is mounted."""
    settings = read_settings(SETTINGS, role="relay", kind=RelaySettings)
    assert services["relay"]["command"] == ["serve", "relay", "--config", "/deploy/coatcheck.toml"]
    assert settings.url == "http://127.0.0.1:8004"
    assert settings.key_lists == "/lists"
    assert services["relay"]["volumes"] == ["relay-lists:/lists", "./deploy:/deploy:ro"]


def test_the_witness_keeps_what_it_cosigned(services: dict[str, dict[str, Any]]) -> None:
    """It has a key of its own, knows the board's, and its checkpoints are on a volume."""
    settings = read_settings(SETTINGS, role="witness", kind=WitnessSettings)
    assert services["witness"]["command"] == [
        *("serve", "witness", "--config"),
        "/deploy/coatcheck.toml",
    ]
    assert f"witnessed:{settings.checkpoints}" in services["witness"]["volumes"]
    made = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert settings.checkpoints in made
    assert settings.boards == ("/keys/public/board.pub",)


def test_the_people_of_compose_take_part_in_the_draft_beside_it(
    services: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """Scripts and draft, run against real services: a round opened, checked and joined."""
    assert services["people"]["entrypoint"] == ["sh", "/deploy/people.sh"]
    first = services["first-round"]
    assert first["entrypoint"] == ["sh", "/deploy/first-round.sh"]
    assert first["environment"]["SERVER"] == "http://127.0.0.1:8002"
    assert set(first["depends_on"]) >= {"shuffler", "server", "board", "relay", "witness"}
    draft = json.loads((ROOT / "deploy" / "draft.json").read_text(encoding="utf-8"))
    people = int(services["people"]["environment"]["PEOPLE"])
    assert [group["minimum"] for group in draft["groups"]] == [people, people]
    for group in draft["groups"]:
        group["minimum"] = 2
    homes = tmp_path / "homes"
    homes.mkdir()
    with Cluster(tmp_path / "roles", relay=True, witnesses=1) as local:
        for path in local.folder.glob("*.public"):
            shutil.copy(path, tmp_path / f"{local.role(path.stem)}.pub")
        (tmp_path / "draft.json").write_text(json.dumps(draft), encoding="utf-8")
        told = {
            "DRAFT": str(tmp_path / "draft.json"),
            "SERVER": local.url("server"),
            "OPERATOR": str(local.folder / "admin.token"),
            "PEOPLE": "2",
            "RELAY": local.url("relay"),
            "KEYS": str(tmp_path),
            "HOMES": str(homes),
        }
        said = _run([str(ROOT / "deploy" / "first-round.sh")], tmp_path, **told).splitlines()
    assert said[0].startswith("the round is http://127.0.0.1:")
    assert all(line.startswith("works ") for line in said[1:-1])
    assert said[-1] == "everybody was answered"
    assert len(list(homes.glob("*.answer"))) == 4


def test_no_role_has_the_keys_or_the_database_of_another(
    services: dict[str, dict[str, Any]],
) -> None:
    """Secret keys are on a volume of the role alone; tables in a database of the role alone."""
    for role in KINDS:
        mounts = services[role]["volumes"]
        assert f"{role}-keys:/keys/own:ro" in mounts
        assert not [m for m in mounts if re.match(r"(?!public)\w+-keys:", m) and role not in m]
    stores = [read_settings(SETTINGS, role=r, kind=k).store for r, k in KINDS.items()]
    assert len(set(stores)) == len(stores)
    rounds = [m for role in KINDS for m in services[role]["volumes"] if "/keys/rounds" in m]
    assert rounds == [f"{role}-rounds:/keys/rounds" for role in ("shuffler", "server", "board")]


def test_no_role_can_open_the_database_of_another(postgres: Postgres) -> None:
    """The script makes a user per role, who owns a database and may connect to no other."""
    base = f"127.0.0.1:{postgres.port}"
    script = (ROOT / "deploy" / "databases.sql").read_text(encoding="utf-8")
    with psycopg.connect(f"postgresql://coatcheck@{base}/postgres", autocommit=True) as connection:
        for statement in script.split(";"):
            if statement.strip():
                connection.execute(statement.encode())
    for role, kind in KINDS.items():
        store = urlsplit(read_settings(SETTINGS, role=role, kind=kind).store)
        assert (store.username, store.path) == (role, f"/{role}")
        BoardStore(f"postgresql://{role}@{base}/{role}").close()
        for other in set(KINDS) - {role}:
            with pytest.raises(psycopg.OperationalError, match="permission denied"):
                psycopg.connect(f"postgresql://{role}@{base}/{other}")


@pytest.mark.parametrize("role", KINDS)
def test_the_keys_are_those_that_the_settings_name(
    services: dict[str, dict[str, Any]], role: str, tmp_path: Path
) -> None:
    """The script is a shell's, makes what the settings ask for, and is run before the roles."""
    assert services[f"{role}-keys"]["entrypoint"] == ["sh", "/deploy/make-keys.sh", role]
    assert services[role]["depends_on"][f"{role}-keys"] == {
        "condition": "service_completed_successfully"
    }
    script = (ROOT / "deploy" / "make-keys.sh").read_text(encoding="utf-8")
    here = tmp_path / "make-keys.sh"
    here.write_text(script.replace("/keys/", f"{tmp_path}/"), encoding="utf-8")
    for folder in ("own", "public"):
        (tmp_path / folder).mkdir()
    for _ in range(2):
        _run([str(here), role], tmp_path)
    settings = read_settings(SETTINGS, role=role, kind=KINDS[role])
    assert [Path(key).name for key in settings.keys] == [f"{role}.key"]
    made = {path.name for path in (tmp_path / "own").iterdir()}
    assert made == {"operator.token", f"{role}.key"}
    for path in (tmp_path / "own").iterdir():
        assert path.stat().st_mode & 0o077 == 0
    assert f'"name": "{role}"' in (tmp_path / "public" / f"{role}.pub").read_text(encoding="utf-8")


def _run(command: list[str], folder: Path, **variables: str) -> str:
    """Run a script of the deployment with our own command on its path; what it said."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, module in (("coatcheck", "-m coatcheck "), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n', encoding="utf-8")
        program.chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(  # noqa: S603 - our own script
        ["/bin/sh", *command],
        env={**environment, **variables},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_image_is_made_of_what_there_is() -> None:
    """Extras, command and files exist and are let into the build, and nobody is root."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locks = re.findall(r"--require-hashes --requirement (\S+)", text)
    assert locks == ["requirements/build.lock", "requirements/image.lock"]
    assert all((ROOT / lock).exists() for lock in locks)
    assert len(re.findall(r"pip install (?!--require-hashes|--no-deps --no-index)", text)) == 0
    assert "coatcheck" in project["scripts"]
    assert {"serve", "keygen"} <= set(COMMANDS)
    assert re.search(r"^USER coatcheck$", text, re.MULTILINE)
    admitted = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE):
        for name in line.split():
            assert f"!{name}" in admitted
            assert (ROOT / name).exists()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is not installed")
    return found


@pytest.mark.parametrize("role", KINDS)
def test_kubernetes_files_are_valid_and_run_the_role(role: str, tmp_path: Path) -> None:
    """Kustomize builds them, the schemas accept them, and the program reads the settings."""
    folder = ROOT / "deploy" / "kubernetes"
    shutil.copytree(folder, tmp_path / "kubernetes")
    own = tmp_path / "kubernetes" / role
    wanted = yaml.safe_load((own / "kustomization.yaml").read_text())
    for generator in (*wanted["configMapGenerator"], *wanted["secretGenerator"]):
        for name in generator["files"]:
            if name != "coatcheck.toml":
                (own / name).write_text(name)
    built = subprocess.run(  # noqa: S603 - our own files
        [_program("kubectl"), "kustomize", own], check=True, capture_output=True, text=True
    ).stdout
    made = list(yaml.safe_load_all(built))
    for document in made:
        kubernetes_validate.validate(document, "1.30", strict=True)
    deployment = next(one for one in made if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["serve", role, "--config", "/settings/coatcheck.toml"]
    settings = read_settings(own / "coatcheck.toml", role=role, kind=KINDS[role])
    assert settings.listen.endswith(f":{container['ports'][0]['containerPort']}")
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    read = [*settings.keys, *settings.trusted, settings.store.removeprefix("sqlite:")]
    if role != "board":
        read.append(settings.round_keys)
    assert all(any(str(name).startswith(path) for path in mounted) for name in read)


def test_the_unit_is_one_that_systemd_takes() -> None:
    """It parses, and leaves the service little that it could do to the machine."""
    unit = ROOT / "deploy" / "systemd" / "coatcheck@.service"
    told = subprocess.run(  # noqa: S603 - our own file
        [_program("systemd-analyze"), "security", "--offline=true", "--threshold=25", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Unknown" not in told.stderr
