"""The items of the paper's evaluation, each a view of a sheet."""
from dataclasses import dataclass
from study import federated, locations
from study.sheets import Sheet
@dataclass(frozen=True)
class Item:
    name: str
    kind: str
    sheet: Sheet
ITEMS = (Item("flincentive1","table",federated.SHEET),Item("flincentive3","table",federated.SHEET),Item("sc-distance","figure",locations.CROWDSOURCING),Item("lbs-f1-shuffle","figure",locations.SOCIAL))
def listed(): return []
def shown(item,quick): return []
