"""Which mechanism, and how to read it: by predicted error, not by faith."""

from coatcheck.domains import Box, Categories, Domain, Product
from coatcheck.errors import Misuse
from coatcheck.randomizers.bounded import BoundedResponse
from coatcheck.randomizers.caps import goal_error
from coatcheck.randomizers.contract import Choice, Goal, Randomizer, check_epsilon, check_goal
from coatcheck.randomizers.fieldwise import FieldwiseResponse
from coatcheck.randomizers.grid import GridResponse
from coatcheck.randomizers.minkowski import MinkowskiResponse
from coatcheck.randomizers.privunit import PrivUnit


def choose(*, epsilon: float, domain: Domain, goal: Goal = "mean", exact: bool = False) -> Choice:
    """Return the mechanism and decode with the least predicted error for a goal.

    Goals: `mean`, the expected distance for a value uniform on the domain; `worst`, the largest
    expected distance over values; `unbiased`, the root of the largest mean squared error of an
    estimate that is right on average. With `exact` only mechanisms that services accept are
    considered.

    >>> choose(epsilon=5.0, domain=Box((-1, -1), (1, 1))).randomizer.name
    'grid'
    """
    check_goal(goal)
    check_epsilon(epsilon)
    return candidates(epsilon=epsilon, domain=domain, goal=goal, exact=exact)[0]


def candidates(
    *, epsilon: float, domain: Domain, goal: Goal = "mean", exact: bool = False
) -> list[Choice]:
    """Return every mechanism that fits, each at its best, the least predicted error first."""
    found = [made for made in _each(epsilon, domain, goal) if made.randomizer.exact or not exact]
    if not found:
        raise Misuse(f"no exact mechanism works on {domain}; leave out exact=True")
    return sorted(found, key=lambda choice: choice.error)


def _each(epsilon: float, domain: Domain, goal: Goal) -> list[Choice]:
    if isinstance(domain, Categories):
        return [GridResponse.tuned(domain=domain, epsilon=epsilon, goal=goal)]
    if isinstance(domain, Product):
        raise Misuse("fields have different units: choose for each field, or call fieldwise()")
    families: list[type[MinkowskiResponse | BoundedResponse | GridResponse]] = [MinkowskiResponse]
    if goal != "unbiased":
        families.append(BoundedResponse)
        if isinstance(domain, Box):
            families.append(GridResponse)
    found = [family.tuned(domain=domain, epsilon=epsilon, goal=goal) for family in families]
    if goal == "unbiased":
        # Better than any cap from about four dimensions up, unless epsilon is large.
        unit = PrivUnit(domain=domain, epsilon=epsilon)
        found.append(Choice(unit, "unbiased", goal_error(unit, goal, "unbiased"), goal))
    return found


def fieldwise(*, epsilon: float, domain: Product, goal: Goal = "mean") -> FieldwiseResponse:
    """Return a product's randomizer: its shares of the budget, the best exact one a field."""
    parts: dict[str, Randomizer] = {}
    for name, share in domain.split(check_epsilon(epsilon)).items():
        field = domain.fields[name]
        parts[name] = choose(epsilon=share, domain=field, goal=goal, exact=True).randomizer
    return FieldwiseResponse(domain=domain, parts=parts)
