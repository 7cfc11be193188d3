# %% [markdown]
# # Learn together, and be rewarded for what you brought
#
# Everybody reports a few coordinates of a clipped gradient. The mean moves the model; the reward
# of each is the Shapley value of their gradient, computed from noisy reports and opened by nobody
# but them. The model is a linear one, so that this runs in seconds.

# %%
import os

import numpy as np

from coatcheck import Ball, Group, Learning, plan, seeded, simulate

PEOPLE = int(os.environ.get("PEOPLE", "1500"))
DIMENSION, SAMPLED = 24, 3
ROUNDS = 3

# %% [markdown]
# ## Data of many people
#
# Each person has one example of a linear rule, and some have it wrong. The server has a few clean
# examples of its own, by which gradients are judged.

# %%
source = seeded(11)


def normal(*shape: int) -> np.ndarray:
    """Return numbers that are nearly normal: a simulation needs no better."""
    count = int(np.prod(shape))
    return (source.uniforms(12 * count).reshape(12, count).sum(axis=0) - 6).reshape(shape)


rule = normal(DIMENSION)
inputs = normal(PEOPLE, DIMENSION)
wrong = source.uniforms(PEOPLE) < 0.25
labels = np.sign(inputs @ rule) * np.where(wrong, -1, 1)
clean = normal(400, DIMENSION)

# %% [markdown]
# ## Rounds
#
# A gradient on 3 coordinates is clipped to an l1 ball. The coordinates are drawn without looking at
# the data and travel in the note; all of them are randomized, zeros too. Each round spends its own
# budget: what several cost together is what `coatcheck.compose` answers.

# %%
ball = Ball(radius=1.0, p=1, dimension=SAMPLED)
note_size = Learning(dimension=DIMENSION, sampled=SAMPLED).note_size
people = Group(ball, crowd=PEOPLE, note_size=note_size)
made = plan({"people": people}, epsilon=1.0, delta=1e-6, goal="unbiased")
print(made)


def slopes(model: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return each example's gradient of the logistic loss."""
    return -(y / (1 + np.exp(np.clip(y * (x @ model), -50, 50))))[:, None] * x


# %%
model = np.zeros(DIMENSION)
for number in range(ROUNDS):
    judge = slopes(model, clean, np.sign(clean @ rule)).mean(axis=0)
    task = Learning(dimension=DIMENSION, sampled=SAMPLED, share_mean=True).judged_by(judge)
    where = task.draw_coordinates(PEOPLE, entropy=source)
    parts = np.take_along_axis(slopes(model, inputs, labels), where, axis=1)
    parts /= np.maximum(1.0, np.abs(parts).sum(axis=1, keepdims=True))
    notes = tuple(note.tobytes() for note in task.notes(where))
    outcome = simulate(
        made, [parts], task=task, notes=[notes], clamp=True, entropy=source, name=f"round {number}"
    )
    rewards = outcome.values(0)[:, 0]
    model -= 4.0 * np.array(outcome.answers[0][0].shared)  # the mean gradient is told to all
    hits = float((np.sign(clean @ model) == np.sign(clean @ rule)).mean())
    print(
        f"round {number}: {hits:.0%} right; mean reward in millionths: right labels"
        f" {1e6 * rewards[~wrong].mean():.0f}, wrong ones {1e6 * rewards[wrong].mean():.0f}"
    )
