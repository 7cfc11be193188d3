# %% [markdown]
# # Who is near, without revealing where you are
#
# Each person reports a noisy place and learns the one-time addresses of people who seem near. The
# answer has a limit, because in a real city a quarter of all people are "near". The limit also
# bounds how many people an answer can expose.

# %%
import os

import numpy as np

from coatcheck import Box, Group, Neighbours, plan, seeded, simulate
from coatcheck.tasks.solvers.close_pairs import agreement

PEOPLE = int(os.environ.get("PEOPLE", "800"))
SQUARE = Box((-1, -1), (1, 1))
RADIUS, LIMIT, CORRUPTED = 0.2, 8, 3

# %% [markdown]
# ## People in a few towns
#
# Three corrupted people tell the server what they learn. With the limit, that exposes at most
# three times eight others, and the plan subtracts them from the crowd.

# %%
source = seeded(3)
towns = source.uniforms(2 * 12).reshape(12, 2) * 1.6 - 0.8
home = towns[source.below(len(towns), PEOPLE)]
places = np.clip(home + 0.05 * (source.uniforms(2 * PEOPLE).reshape(-1, 2) * 2 - 1), -1, 1)
task = Neighbours(radius=RADIUS, limit=LIMIT)
group = Group(SQUARE, crowd=PEOPLE, corrupted=CORRUPTED)
planned = plan({"people": group}, epsilon=2.0, delta=1e-6, task=task)
print(planned)

# %%
best = planned["people"].best
outcome = simulate(planned, [places], entropy=source)

# %% [markdown]
# ## How good are the lists?
#
# First the lists that people got; then whole neighbourhoods, as the paper counts them, with the
# decoder of the plan and with the unbiased decoder.

# %%
right = total = 0
for row, listed in enumerate(outcome.partners(0)):
    near = np.linalg.norm(places - places[row], axis=1) <= RADIUS
    right += sum(bool(near[other]) for _, other in listed)
    total += len(listed)
chance = np.mean([(np.linalg.norm(places - place, axis=1) <= RADIUS).mean() for place in places])
print(f"{right} of {total} listed neighbours are near ({chance:.0%} of all people are)")

reports = best.randomizer.randomize(places, source)
for how in (best.how, best.randomizer.decodes[0]):
    score = agreement(places, best.randomizer.estimate(reports, how), radius=RADIUS)
    print(f"whole neighbourhoods, decoded by {how}: F1 {score.f1:.2f}")
