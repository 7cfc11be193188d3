# %% [markdown]
# # Learn together, and be rewarded for your contribution
#
# Each person has one example and trains a shared model with it. All rounds together keep one
# promise. A person reports in a round if their participation coin says so; silence is a message of
# the same size. The recipe: a small model, a private centre first, clipped gradients, a large step
# that shrinks. docs/how-to/learn-together.md shows the results on MNIST, and comparisons.

# %%
import os

import numpy as np

from coatcheck import Ball, Box, Group, Learning, Misuse, plan, seeded, simulate
from coatcheck.tasks.learning import Descent, clipped

PEOPLE = int(os.environ.get("PEOPLE", "1500"))
ROUNDS = int(os.environ.get("ROUNDS", "10"))
FEATURES, RATE, CLIP = 6, 0.5, 0.5

# %% [markdown]
# ## Data of many people
#
# Each person has one example of a linear rule, and some labels are wrong. The server has a few
# clean examples, by which it judges people at the end.

# %%
source = seeded(11)


def features(count: int) -> np.ndarray:
    """Return features in the unit ball, away from 0, so that the centre is worth a round."""
    return (0.2 + 0.6 * source.uniforms(count * FEATURES)).reshape(count, FEATURES) / FEATURES**0.5


rule = 2 * source.uniforms(FEATURES) - 1
examples = features(PEOPLE)
labels = (examples - 0.5 / FEATURES**0.5) @ rule > 0
wrong = source.uniforms(PEOPLE) < 0.15
labels ^= wrong
clean = features(400)
clean_labels = (clean - 0.5 / FEATURES**0.5) @ rule > 0

# %% [markdown]
# ## One promise over all rounds
#
# The plan is for all rounds together. Reports of another shape need a separate plan.


# %%
def planned(domain: Ball | Box):
    """Return the plan of a round in which people report values of this domain."""
    people = Group(domain, crowd=PEOPLE)
    promise = {"epsilon": 2.0, "delta": 1e-6, "goal": "unbiased"}
    return plan({"people": people}, **promise, rounds=ROUNDS, rate=RATE)


gradients_plan = planned(Ball(radius=CLIP, p=2, dimension=FEATURES + 1))
print(gradients_plan)

# %% [markdown]
# ## Round 0: the private centre of the features

# %%
mean = Learning(dimension=FEATURES, share_mean=True, rewards=False)
centre_round = simulate(
    planned(Ball(radius=1.0, p=2, dimension=FEATURES)), [examples], task=mean, entropy=source
)
middle = np.array(centre_round.answers[0][0].shared)


def inputs(of: np.ndarray) -> np.ndarray:
    """Return centred features, scaled up, with a bias."""
    return np.concatenate([3 * (of - middle), np.full((len(of), 1), 0.3)], axis=1)


def slopes(at: np.ndarray, of: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return each example's clipped gradient of the logistic loss."""
    misses = 1 / (1 + np.exp(-inputs(of) @ at)) - right
    return clipped(misses[:, None] * inputs(of), dimension=FEATURES + 1, clip=CLIP)


# %% [markdown]
# ## Rounds 1 to 8: gradients
#
# A gradient that is not a list of finite numbers never becomes a report.

# %%
try:
    clipped(np.full(FEATURES + 1, np.nan), dimension=FEATURES + 1, clip=CLIP)
except Misuse as error:
    print(error)

task = Learning(dimension=FEATURES + 1, share_mean=True, rewards=False)
model = Descent(step=60.0, rounds=ROUNDS - 2, momentum=0.5).start(np.zeros(FEATURES + 1))
for number in range(1, ROUNDS - 1):
    reports = slopes(model.parameters, examples, labels)
    outcome = simulate(gradients_plan, [reports], task=task, entropy=source, name=f"round {number}")
    model = model.after(outcome.answers[0][0].shared)
    hits = ((inputs(clean) @ model.parameters > 0) == clean_labels).mean()
    print(f"round {number}: {hits:.0%} right")

# %% [markdown]
# ## Round 9: rewards
#
# A whole gradient is too noisy to judge one person by. So people report one number: how far their
# gradient goes along a direction that the server has published, from its own examples. A silent
# person gets no reward.

# %%
direction = slopes(model.parameters, clean, clean_labels).mean(axis=0)
direction /= np.linalg.norm(direction)
along = slopes(model.parameters, examples, labels) @ direction
outcome = simulate(
    planned(Box((-CLIP,), (CLIP,))),
    [along[:, None]],
    task=Learning(dimension=1, game="progress"),
    clamp=True,
    entropy=source,
    name="rewards",
)
rewards = outcome.values(0)[:, 0]
spoke = np.isfinite(rewards) & (rewards != 0)
for name, rows in (("right", spoke & ~wrong), ("wrong", spoke & wrong)):
    print(f"mean reward of {name} labels: {1e6 * rewards[rows].mean():.1f} millionths")
