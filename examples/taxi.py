# %% [markdown]
# # A taxi for everybody, and nobody's address
#
# Riders and drivers hand in noisy places. The server matches them, sees where the crowd is and
# never who is where; each person opens one answer, their partner, and writes to them.
#
# The data are drawn here. Open this file as a notebook (VS Code, Jupytext) or run it as a script.

# %%
import os

import numpy as np

from coatcheck import Box, Group, LeastCostMatching, plan, seeded, simulate
from coatcheck.tasks.distances import scale_of

PEOPLE = int(os.environ.get("PEOPLE", "600"))
CITY = Box.geographic(south=31.0, west=121.0, north=31.4, east=121.6)
EPSILON, DELTA = 1.0, 1e-6

# %% [markdown]
# ## A plan
#
# What can be promised to so many people, and what will it cost in metres? The plan chooses the
# mechanism, its local ε and its shape together, and says what is left if people stay away.

# %%
task = LeastCostMatching(groups=("riders", "drivers"), scale=scale_of(CITY))
sizes = {"riders": PEOPLE, "drivers": PEOPLE // 2}
groups = {name: Group(CITY, crowd=size) for name, size in sizes.items()}
made = plan(groups, epsilon=EPSILON, delta=DELTA, task=task)
print(made)

# %% [markdown]
# ## A round
#
# The same objects that ship run in memory here: terms are signed, reports sealed, shuffled and
# opened, answers published. Randomness is seeded, which is for simulations only.

# %%
source = seeded(7)
low, high = np.array(CITY.lo), np.array(CITY.hi)
places = {
    name: low + source.uniforms(2 * size).reshape(size, 2) * (high - low)
    for name, size in sizes.items()
}
outcome = simulate(made, places, entropy=source)

# %% [markdown]
# ## What came of it
#
# The distance that drivers really go, beside what a matching of the true places would give, and
# beside a random one.

# %%
pairs = [(row, found[0][1]) for row, found in enumerate(outcome.partners(1)) if found]
drivers, riders = places["drivers"], places["riders"]
metres = np.array(task.scale)


def apart(driver: np.ndarray, rider: np.ndarray) -> float:
    """Return the mean distance between places, in kilometres."""
    return float(np.linalg.norm((driver - rider) * metres, axis=1).mean()) / 1000


matched = apart(drivers[[d for d, _ in pairs]], riders[[r for _, r in pairs]])
clear = task.score([riders, drivers], estimates=[riders, drivers]).value / len(drivers) / 1000
chance = apart(drivers, riders[: len(drivers)])
print(f"{len(pairs)} drivers have a rider; mean distance {matched:.1f} km")
print(f"with everybody's place in clear {clear:.1f} km, by chance {chance:.1f} km")
print(outcome.guarantees[0])
