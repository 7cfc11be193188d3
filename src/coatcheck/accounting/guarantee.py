"""The guarantee for each member of a crowd: ε and δ, against whom, and under which assumptions.

This file also counts the people that a person hides among. Corrupted people, people whom the
answers give away and people whose report did not arrive hide nobody (paper, Theorem 1 and its
proof). A `Disclosure` is what no ε covers: the answers that people give to candidates by letter.
`html_table` draws guarantees, plans, outcomes and ledgers in notebooks.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Final

from coatcheck.accounting.laws import AnyLdp, Law, OwnCoin, WithDecoys
from coatcheck.accounting.numerics import check_count
from coatcheck.errors import Misuse

METHODS: Final = ("closed-form", "clones-2021", "generic", "mechanism")
ADJACENCY: Final = "replacing one person's value"
_ALWAYS: Final = (
    "every honest person draws a report once, with the same randomizer and fresh one-time keys",
    "nobody but an honest shuffler learns who sent which report",
    "the participants, the lost reports and the corrupted people are fixed before anybody reports",
)
_PROOF: Final = {
    "closed-form": "the printed equation of Feldman, McMillan and Talwar (2021)",
    "clones-2021": "computed for reports that are clones with chance e^-ε",
    "generic": "computed for the worst randomizer of this local ε",
    "mechanism": "computed for this randomizer's own law",
}


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A promise replayed in interval arithmetic: numbers that enclose the bound that it states.

    Attributes:
        low: an ε at which the bound is certainly above δ; zero if the search finds none.
        high: an ε at which the bound is certainly at most δ: the promised one if it holds.
        delta_low: the bound on δ at the promised ε is at least this.
        delta_high: the bound is at most this.
    """

    low: float
    high: float
    delta_low: float
    delta_high: float


@dataclass(frozen=True, kw_only=True)
class Disclosure:
    """What a person who settles by letter tells candidates; prints as a sentence.

    Every candidate learns one exact answer about the person's cell, and nobody else learns any
    (docs/explanation/exposure.md).

    Attributes:
        candidates: the most people who get an answer, from all lists together.
        cells: the most cells that an answer tells apart from all others.
        rings: into how many rings around one cell an answer divides these cells; 1 means that the
            answer is yes or no.
        chooses: whether a candidate in a ring also learns how the person chooses among candidates.
    """

    candidates: int
    cells: int
    rings: int = 1
    chooses: bool = False

    @property
    def bits(self) -> float:
        """The information in all answers about rings together, at most."""
        return self.candidates * math.log2(self.rings + 1)

    def __str__(self) -> str:
        cells = f"{self.cells:,} cells around a cell that the candidate chose before"
        answer = f"whether your cell is one of {cells}"
        if self.rings > 1:
            answer = f"in which of {self.rings} rings your cell is, or in none, of {cells}"
        choices = "; one in a ring also learns how you choose" if self.chooses else ""
        return (
            f"Letters: if you settle, each of at most {self.candidates:,} candidates learns one "
            f"exact answer, {answer}{choices}. A candidate who lies chooses that cell freely. "
            "ε does not cover these answers"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Guarantee:
    """The promise to each person of a crowd; prints as a sentence.

    Attributes:
        epsilon: an upper bound on the privacy loss, rounded up.
        delta: the chance with which the loss may be larger.
        crowd: people in the group, the person included.
        corrupted: of these, how many work for the adversary.
        exposed: of these, how many the answers may give away to the adversary; with decoys, how
            many messages. ε is proven only if the reports do not decide who these are (`caveat`).
        lost: of these, how many did not report.
        traps: the part of δ that is the chance of a miscounted crowd, in a cascade of shufflers.
        method: how the bound was computed.
        law: the privacy law of one report.
        amplified: whether ε is below the local ε.
        least: an ε that some data set reaches at this δ, if requested and known.
        certificate: an enclosure of ε and δ without rounding errors, if requested.
        adjacency: the difference between two neighboring data sets.
        open: whether anybody may send reports, without limit.
        letters: what the person tells candidates by letter, if they settle; no ε covers it.
    """

    epsilon: float
    delta: float
    crowd: int
    corrupted: int
    exposed: int
    lost: int
    method: str
    law: Law
    amplified: bool
    traps: float = 0.0
    least: float | None = None
    certificate: Certificate | None = None
    adjacency: str = ADJACENCY
    open: bool = False
    letters: Disclosure | None = None

    @property
    def local_epsilon(self) -> float:
        """The ε of one report on its own, without a crowd."""
        return self.law.epsilon

    @property
    def decoys(self) -> int:
        """The decoys that each person sends beside the report."""
        return self.law.each if isinstance(self.law, WithDecoys) else 0

    @property
    def anonymous(self) -> int:
        """The number of people to hide among, the person included."""
        return anonymous(
            crowd=self.crowd,
            corrupted=self.corrupted,
            exposed=self.exposed,
            lost=self.lost,
            decoys=self.decoys,
        )

    def with_traps(self, chance: float, *, delta: float) -> "Guarantee":
        """Return a copy with the chance of a miscount by a cascade's traps, and the total δ."""
        return replace(self, traps=chance, delta=delta)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the promise relies on, one clause each; a count of zero has no clause."""
        clauses = list(_ALWAYS)
        if isinstance(self.law, OwnCoin):
            rate = f"{self.law.rate:g}"
            clauses.append(f"each person reports with chance {rate}, decided by a separate coin")
        if self.decoys:
            clauses.append(
                f"each of them also sends {_counted(self.decoys, 'decoy')}, drawn uniformly, which "
                "nobody but the sender can tell from a report"
            )
        if self.traps:
            clauses.append(
                "at least one shuffler of the cascade is honest, whatever the others and the "
                f"server do (δ includes {rounded_up(self.traps)}, a miscount of its traps)"
            )
        if self.corrupted:
            clauses.append(f"at most {self.corrupted:,} of them are corrupted")
        if self.open:
            clauses.append("no outsider floods the round with reports, although anybody may report")
        if self.lost:
            clauses.append(f"at least {self.crowd - self.lost:,} of them report")
        if self.exposed:
            clauses.append(
                f"the answers give away at most {self.exposed:,} of "
                f"{'their messages' if self.decoys else 'them'}; who they are "
                "does not depend on what anybody reported, and the person is not one of them"
            )
        return tuple(clauses)

    @property
    def caveat(self) -> str:
        """What still holds if an assumption that nobody can check fails; empty if there is none.

        The reports may decide whom the answers give away; outsiders may flood an open round.
        """
        local, sentences = rounded_up(self.local_epsilon), []
        if self.decoys:
            sentences.append(
                "If the shufflers tell who sent which messages, the decoys hide nothing, and only "
                f"the local ε = {local} holds."
            )
        if self.open:
            sentences.append(
                "Anybody may report in this round: against an outsider who floods it with reports, "
                f"only the local ε = {local} is proven for certain."
            )
        if self.exposed:
            sentences.append(
                "The reports decide answers such as partners or neighbours: against an adversary "
                "who learns who those people are, only the local "
                f"ε = {local} is proven for certain."
            )
        return " ".join(sentences)

    @property
    def disclosure(self) -> str:
        """What letters tell, and which ε holds beside it; empty if the person writes none."""
        if self.letters is None:
            return ""
        return (
            f"{self.letters}; apart from them ε holds against everybody but the candidates, and "
            f"the local ε = {rounded_up(self.local_epsilon)} against candidates, even if they work "
            "with the server."
        )

    @property
    def _proof(self) -> str:
        unknown = isinstance(self.law, AnyLdp) and self.method == "mechanism"
        proof = _PROOF["generic" if unknown else self.method]
        return f"{proof} with decoys" if self.decoys and self.method == "mechanism" else proof

    @property
    def _beside(self) -> str:
        return f" and {_counted(self.decoys, 'decoy')}" if self.decoys else ""

    @property
    def _checked(self) -> str:
        if self.certificate is None:
            return ""
        low, high = self.certificate.low, self.certificate.high
        return f"; in interval arithmetic the bound lies between {low:.9g} and {high:.9g}"

    def __repr__(self) -> str:
        return (
            f"Guarantee(ε = {rounded_up(self.epsilon)}, δ = {rounded_up(self.delta)}, one of "
            f"{self.anonymous:,}, local ε = {rounded_up(self.local_epsilon)}{self._beside})"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("ε", rounded_up(self.epsilon)),
            ("δ", rounded_up(self.delta)),
            ("people", f"{self.crowd:,}"),
            ("honest and anonymous", f"{self.anonymous:,}"),
            ("local ε", rounded_up(self.local_epsilon)),
            *([("decoys of each", f"{self.decoys}")] if self.decoys else []),
        ]
        if self.letters:
            rows.append(("candidates who learn an answer", f"{self.letters.candidates:,}"))
        return html_table("the promise to each person", (), rows, note=str(self))

    def __str__(self) -> str:
        hidden = "all" if self.anonymous == self.crowd else f"{self.anonymous:,}"
        least = "" if self.least is None else f"; no proof can go below ε = {self.least:.4g}"
        promise = (
            f"{self.adjacency.capitalize()} changes the chance of anything others see by a factor "
            f"of at most e^ε with ε = {rounded_up(self.epsilon)}, "
            f"up to δ = {rounded_up(self.delta)}: "
            f"one of {self.crowd:,} people, {hidden} of them honest and anonymous, "
            f"each with local ε = {rounded_up(self.local_epsilon)}{self._beside} "
            f"({self._proof}{least}{self._checked})."
        )
        sentences = [
            promise,
            "" if self.amplified else "The crowd adds nothing here: ε is the local one.",
            f"Assumes: {'; '.join(self.assumptions)}.",
            self.caveat,
            self.disclosure,
        ]
        return " ".join(filter(None, sentences))


def anonymous(
    *, crowd: int, corrupted: int = 0, exposed: int = 0, lost: int = 0, decoys: int = 0
) -> int:
    """Count the people a person hides among, the person included: n' = |G| - |C| - |U| - lost.

    With `decoys` per person the answers give away messages, not people. An exposed decoy costs
    more than an exposed report (docs/explanation/amplification.md, section 7c), so as many exposed
    messages as a person has decoys count as one person.
    *Assumes:* the reports do not decide who is exposed (docs/explanation/exposure.md).
    """
    counts = {
        "crowd": crowd,
        "corrupted": corrupted,
        "exposed": exposed,
        "lost": lost,
        "decoys": decoys,
    }
    for name, count in counts.items():
        check_count(count, name)
    if crowd < 1:
        raise Misuse(f"`crowd` must be at least 1, the person to protect, not {crowd}")
    if corrupted >= crowd:
        raise Misuse(f"{corrupted:,} corrupted of {crowd:,} people leave nobody to protect")
    return max(1, int(crowd - corrupted - lost - math.ceil(exposed / max(1, decoys))))


def exposed_by_matching(*, corrupted_elsewhere: int) -> int:
    """Bound the people exposed by a matching: one partner per corrupted person elsewhere."""
    return anonymous(crowd=corrupted_elsewhere + 1) - 1


def exposed_by_lists(*, corrupted: int, longest: int) -> int:
    """Bound the people exposed by lists of neighbours: one list per corrupted person.

    Args:
        corrupted: people of any group who show their answers to the adversary.
        longest: the most neighbours that an answer lists.
    """
    return (anonymous(crowd=corrupted + 1) - 1) * (anonymous(crowd=longest + 1) - 1)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def rounded_up(value: float) -> str:
    """Round up to four digits, so that no printed number looks more private than the true one."""
    text = f"{value:.4g}"
    return text if float(text) >= value else f"{value * (1 + 5e-4):.4g}"


def html_table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, note: str = ""
) -> str:
    """Return an unstyled HTML table with the note folded below it."""
    top = f"<tr>{_cells('th', head)}</tr>" if head else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    more = (
        f"<details><summary>in words</summary><pre>{escape(note)}</pre></details>" if note else ""
    )
    return f"<table><caption>{escape(caption)}</caption>{top}{body}</table>{more}"


def _cells(kind: str, texts: Iterable[str]) -> str:
    return "".join(f"<{kind}>{escape(text)}</{kind}>" for text in texts)
