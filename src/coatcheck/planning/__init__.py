"""From what people ask for to mechanisms with a predicted error."""

from coatcheck.planning.budget_search import Design, Promise
from coatcheck.planning.plans import Group, Plan, Recommendation, plan
from coatcheck.protocol.drafting import GroupPlan

__all__ = ["Design", "Group", "GroupPlan", "Plan", "Promise", "Recommendation", "plan"]
