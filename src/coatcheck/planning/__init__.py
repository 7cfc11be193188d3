"""`plan`, from ε, δ and crowds to mechanisms with predicted errors, and its types."""

from coatcheck.planning.budget_search import Design, Promise
from coatcheck.planning.plans import Group, Plan, Recommendation, plan
from coatcheck.protocol.drafting import GroupPlan

__all__ = ["Design", "Group", "GroupPlan", "Plan", "Promise", "Recommendation", "plan"]
