"""What operators watch: rules and dashboard name only what running services export."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from coatcheck.services.local_cluster import Cluster
from coatcheck.services.web.routing import KINDS
from support.service_rounds import QUICK, get, whole_round

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
SOURCES = Path(__file__).parents[2] / "src" / "coatcheck" / "services"
NAME = re.compile(r"\bcoatcheck_[a-z_]+\b")
CHOSEN = re.compile(r'\b(coatcheck_[a-z_]+)\{(\w+)=~?"([^"]+)"\}')
_LABELS = {"role", "instance", "job", "le"}


def rules() -> list[dict[str, str]]:
    """Read the alert rules."""
    document = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    """List every expression of the rules and of the dashboard."""
    panels = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    return [
        *(rule["expr"] for rule in rules()),
        *(target["expr"] for panel in panels for target in panel["targets"]),
    ]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[str]]]:
    """Run a round, and read what the services export: the values of each metric's labels."""
    found: dict[str, dict[str, set[str]]] = {}
    with Cluster(tmp_path_factory.mktemp("watched"), extra=QUICK) as local:
        asyncio.run(whole_round(local, "watched"))
        token = {"authorization": f"Bearer {local.token}"}
        pages = [get(f"{local.url(name)}/metrics", headers=token).text for name in local.names]
    for page in pages:
        for family in text_string_to_metric_families(page):
            known = found.setdefault(family.name, {})
            for sample in family.samples:
                labels = found.setdefault(sample.name, {})
                for label, value in sample.labels.items():
                    labels.setdefault(label, set()).add(value)
                    known.setdefault(label, set()).add(value)
    return found


def test_every_metric_that_is_watched_is_exported(
    exported: dict[str, dict[str, set[str]]],
) -> None:
    """A counter that was never counted has its name in the page, too."""
    watched = {name for text in expressions() for name in NAME.findall(text)}
    assert len(watched) > 6
    for name in watched:
        assert name in exported or name.removesuffix("_total") in exported, name


def test_every_label_that_is_watched_has_such_values(
    exported: dict[str, dict[str, set[str]]],
) -> None:
    """Phases, steps and types of problems are those that there are."""
    text = "".join(file.read_text(encoding="utf-8") for file in SOURCES.rglob("*.py"))
    known = {
        "phase": exported["coatcheck_rounds"]["phase"],
        "type": set(KINDS),
        "step": set(re.findall(r'"([a-z]+)"', text)),
    }
    chosen = [found for one in expressions() for found in CHOSEN.findall(one)]
    assert len(chosen) >= 5
    for _, label, values in chosen:
        assert set(values.split("|")) <= known[label], (label, values)


def test_every_alert_says_what_to_do() -> None:
    """Each says what to do, and the pages that it names exist."""
    for rule in rules():
        notes: dict[str, str] = rule["annotations"]  # type: ignore[assignment] # YAML
        assert notes["summary"]
        for page in re.findall(r"docs/\S+\.md|[A-Z]+\.md", notes["action"]):
            assert (FOLDER.parents[1] / page).exists(), page


def test_the_dashboard_groups_by_nothing_of_a_person() -> None:
    """Whatever a legend or a group names is a label that services export for operators."""
    panels = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    legends = [target["legendFormat"] for panel in panels for target in panel["targets"]]
    named = {label for legend in legends for label in re.findall(r"\{\{(\w+)\}\}", legend)}
    assert named <= _LABELS | {"phase", "stage", "state", "step", "type", "verdict"}
    assert len({panel["id"] for panel in panels}) == len(panels)


def promtool(*words: str | Path) -> str:
    """Run Prometheus' own checker."""
    program = shutil.which("promtool")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("promtool is not installed")
    done = subprocess.run(  # noqa: S603 - our own files
        [program, *words], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_files() -> None:
    """Rules and configuration are what Prometheus reads."""
    assert f"{len(rules())} rules found" in promtool("check", "rules", "alerts.yaml")
    promtool("check", "config", "--syntax-only", "prometheus.yaml")


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """A role that nobody leads, and an end that the board does not take; not while all is well."""
    role = '{instance="a", job="coatcheck", role="server"}'
    series = {
        f"coatcheck_role{role}": "1x40",
        'coatcheck_leads{instance="a", job="coatcheck"}': "1x10 0x30",
        'coatcheck_rounds{instance="a", job="coatcheck", phase="answered"}': "0x10 1x30",
    }
    wanted = {"CoatcheckNobodyLeads": {"role": "server", "severity": "page"}}
    owed = {"instance": "a", "job": "coatcheck", "phase": "answered", "severity": "page"}
    wanted["CoatcheckOutcomeOverdue"] = owed

    def expected(name: str, at: str, labels: dict[str, str] | None) -> dict[str, object]:
        rule = next(one for one in rules() if one["alert"] == name)
        notes: dict[str, str] = rule["annotations"]  # type: ignore[assignment] # YAML
        told = {
            key: re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"<\1>", text) for key, text in notes.items()
        }
        for label, value in (labels or {}).items():
            told = {key: text.replace(f"<{label}>", value) for key, text in told.items()}
        fired = [{"exp_labels": labels, "exp_annotations": told}] if labels else []
        return {"eval_time": at, "alertname": name, "exp_alerts": fired}

    times = [
        expected(name, at, labels if at == "39m" else None)
        for name, labels in wanted.items()
        for at in ("5m", "39m")
    ]
    given = [{"series": name, "values": _steps(text)} for name, text in series.items()]
    file = tmp_path / "test.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(FOLDER / "alerts.yaml")],
                "evaluation_interval": "1m",
                "tests": [{"interval": "1m", "input_series": given, "alert_rule_test": times}],
            }
        )
    )
    promtool("test", "rules", file)


def _steps(text: str) -> str:
    """Write `1x10` as Prometheus does: a value and how often it stays."""
    return " ".join(f"{one.partition('x')[0]}+0x{one.partition('x')[2]}" for one in text.split())
