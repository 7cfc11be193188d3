# The public names, for type checkers; a test compares them with `__init__.py`.

from coatcheck.accounting.amplification import Guarantee as Guarantee
from coatcheck.accounting.amplification import amplify as amplify
from coatcheck.accounting.amplification import calibrate as calibrate
from coatcheck.accounting.composition import calibrate_rounds as calibrate_rounds
from coatcheck.accounting.composition import compose as compose
from coatcheck.accounting.laws import Channel as Channel
from coatcheck.accounting.ledger import Ledger as Ledger
from coatcheck.domains import Ball as Ball
from coatcheck.domains import Box as Box
from coatcheck.domains import Categories as Categories
from coatcheck.domains import Product as Product
from coatcheck.entropy import seeded as seeded
from coatcheck.errors import Error as Error
from coatcheck.errors import Misuse as Misuse
from coatcheck.errors import Refused as Refused
from coatcheck.planning import Group as Group
from coatcheck.planning import GroupPlan as GroupPlan
from coatcheck.planning import plan as plan
from coatcheck.protocol.agreement import Trust as Trust
from coatcheck.protocol.client import Limit as Limit
from coatcheck.randomizers import BoundedResponse as BoundedResponse
from coatcheck.randomizers import FieldwiseResponse as FieldwiseResponse
from coatcheck.randomizers import GridResponse as GridResponse
from coatcheck.randomizers import MinkowskiResponse as MinkowskiResponse
from coatcheck.randomizers import Prior as Prior
from coatcheck.randomizers import choose as choose
from coatcheck.services.person.session import Session as Session
from coatcheck.simulation.round import simulate as simulate
from coatcheck.tasks.download import Download as Download
from coatcheck.tasks.learning import Learning as Learning
from coatcheck.tasks.matching import LeastCostMatching as LeastCostMatching
from coatcheck.tasks.matching import MaximumMatching as MaximumMatching
from coatcheck.tasks.neighbours import Neighbours as Neighbours

__version__: str
