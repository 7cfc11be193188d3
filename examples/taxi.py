# %% [markdown]
# # A taxi for everybody, and nobody's place revealed
#
# Riders and drivers report noisy places. The server matches them. It sees where the crowd is, but
# never who is where. Each person opens one answer, their partner, and can write to them.
#
# This file draws its own data. Open it as a notebook (VS Code, Jupytext) or run it as a script.

# %%
import os

import numpy as np

from coatcheck import Box, Group, LeastCostMatching, plan, seeded, simulate
from coatcheck.tasks.contract import scale_of

PEOPLE = int(os.environ.get("PEOPLE", "600"))
CITY = Box.geographic(south=31.0, west=121.0, north=31.4, east=121.6)
EPSILON, DELTA = 1.0, 1e-6

# %% [markdown]
# ## A plan
#
# What can you promise to this many people, and what will it cost in metres? The plan chooses the
# mechanism, its local ε and its shape together, and states the effect of people staying away.

# %%
task = LeastCostMatching(groups=("riders", "drivers"), scale=scale_of(CITY))
sizes = {"riders": PEOPLE, "drivers": PEOPLE // 2}
groups = {name: Group(CITY, crowd=size) for name, size in sizes.items()}
planned = plan(groups, epsilon=EPSILON, delta=DELTA, task=task)
print(planned)

# %% [markdown]
# ## A round
#
# The shipped role objects run in memory here: they sign terms, seal, shuffle and open reports, and
# publish answers. The randomness is seeded, which is for simulations only.

# %%
source = seeded(7)
low, high = np.array(CITY.lo), np.array(CITY.hi)
places = {
    name: low + source.uniforms(2 * size).reshape(size, 2) * (high - low)
    for name, size in sizes.items()
}
outcome = simulate(planned, places, entropy=source)

# %% [markdown]
# ## Results
#
# The distance that drivers really go, compared with a matching of the true places, and
# with a random matching.

# %%
pairs = [(row, partners[0][1]) for row, partners in enumerate(outcome.partners(1)) if partners]
drivers, riders = places["drivers"], places["riders"]
metres = np.array(task.scale)


def apart(driver: np.ndarray, rider: np.ndarray) -> float:
    """Return the mean distance between places, in kilometres."""
    return float(np.linalg.norm((driver - rider) * metres, axis=1).mean()) / 1000


matched = apart(drivers[[d for d, _ in pairs]], riders[[r for _, r in pairs]])
true = task.score([riders, drivers], estimates=[riders, drivers]).value / len(drivers) / 1000
chance = apart(drivers, riders[: len(drivers)])
print(f"{len(pairs)} drivers have a rider; mean distance {matched:.1f} km")
print(f"with true places {true:.1f} km, by chance {chance:.1f} km")
print(outcome.guarantees[0])
