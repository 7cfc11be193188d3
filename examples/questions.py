# %% [markdown]
# # Three questions to a crowd
#
# Where do I stand, who is like me, and with whom do I form a group? Each person sends one noisy
# report. The answers come back sealed, and only the last two name other people.

# %%
import os

import numpy as np

from coatcheck import Box, Group, plan, seeded, simulate
from coatcheck.tasks.grouping import Groups
from coatcheck.tasks.neighbours import Similar
from coatcheck.tasks.standing import Standing

PEOPLE = int(os.environ.get("PEOPLE", "600"))
source = seeded(11)

# %% [markdown]
# ## Where do I stand?
#
# A salary, in thousands. Each person learns the share of people below them with its standard
# error, and the deciles: a person who knows their own salary finds their place among these.

# %%
salaries = 20 + 80 * source.uniforms(PEOPLE).reshape(-1, 1) ** 2
planned = plan({"people": Group(Box((0,), (120,)), crowd=PEOPLE)}, epsilon=1.0, delta=1e-6)
outcome = simulate(planned, [salaries], task=Standing(), entropy=source)
shares = np.array([answer.values for answer in outcome.answers[0]])
deciles = np.array(outcome.answers[0][0].shared)
true = np.argsort(np.argsort(salaries[:, 0])) / PEOPLE
own = np.searchsorted(deciles, salaries[:, 0]) / 10
print(
    f"the server's share: off by {np.abs(shares[:, 0] - true).mean():.0%} of the crowd on average,"
)
print(f"with a stated standard error of {shares[:, 1].mean():.0%}")
print(f"looked up among the deciles: off by {np.abs(own + 0.05 - true).mean():.0%}")

# %% [markdown]
# ## Who is like me, and who is in my group?
#
# Two numbers per person, for example tastes. An answer names others, so it exposes them: five to
# each person who asks who is similar, three to each member of a group of four.

# %%
tastes = np.clip(source.uniforms(2 * PEOPLE).reshape(-1, 2) ** 2 * 2 - 1, -1, 1)
square = {"people": Group(Box((-1, -1), (1, 1)), crowd=PEOPLE, corrupted=2)}
chance = np.linalg.norm(tastes - np.roll(tastes, 1, axis=0), axis=1).mean()
for task in (Similar(limit=5), Groups(size=4)):
    planned = plan(square, epsilon=2.0, delta=1e-6, task=task)
    outcome = simulate(planned, [tastes], entropy=source)
    apart = [
        float(np.linalg.norm(tastes[row] - tastes[other]))
        for row, named in enumerate(outcome.partners(0))
        for _, other in named
    ]
    print(f"{task.name}: people named are {np.mean(apart):.2f} apart, by chance {chance:.2f}")
