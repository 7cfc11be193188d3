# %% [markdown]
# # Who is near, without saying where one is
#
# Everybody hands in a noisy place and learns the one-time addresses of those who seem near. The
# answer has a limit, because in a real city a quarter of all people are "near": the limit is also
# what an answer can give away.

# %%
import os

import numpy as np

from coatcheck import Box, Group, Neighbours, plan, seeded, simulate
from coatcheck.tasks.pairs import agreement

PEOPLE = int(os.environ.get("PEOPLE", "800"))
SQUARE = Box((-1, -1), (1, 1))
RADIUS, LIMIT, CORRUPTED = 0.2, 8, 3

# %% [markdown]
# ## People in a few towns
#
# Three corrupted people tell the server what they learn: with the limit, that gives away at most
# three times eight others, and the plan takes them out of the crowd.

# %%
source = seeded(3)
towns = source.uniforms(2 * 12).reshape(12, 2) * 1.6 - 0.8
home = towns[source.below(len(towns), PEOPLE)]
places = np.clip(home + 0.05 * (source.uniforms(2 * PEOPLE).reshape(-1, 2) * 2 - 1), -1, 1)
task = Neighbours(radius=RADIUS, limit=LIMIT)
group = Group(SQUARE, crowd=PEOPLE, corrupted=CORRUPTED)
made = plan({"people": group}, epsilon=2.0, delta=1e-6, task=task)
print(made)

# %%
best = made["people"].best
outcome = simulate(made, [places], entropy=source)

# %% [markdown]
# ## How good are the lists?
#
# First the lists that people got; then whole neighbourhoods, as the paper counts them, with the
# mechanism read as the plan says and read without bias.

# %%
right = total = 0
for row, found in enumerate(outcome.partners(0)):
    near = np.linalg.norm(places - places[row], axis=1) <= RADIUS
    right += sum(bool(near[other]) for _, other in found)
    total += len(found)
chance = np.mean([(np.linalg.norm(places - place, axis=1) <= RADIUS).mean() for place in places])
print(f"{right} of {total} listed neighbours are near ({chance:.0%} of all people are)")

reports = best.randomizer.randomize(places, source)
for how in (best.how, best.randomizer.decodes[0]):
    score = agreement(places, best.randomizer.estimate(reports, how), radius=RADIUS)
    print(f"whole neighbourhoods, read by {how}: F1 {score.f1:.2f}")
