# %% [markdown]
# # From arrays to a fairness plot
#
# Ten post offices read handwritten digits; the scanners of two of them turn the page upside down. One model has to
# serve all ten. What do the two get from averaging, and what from AdaFed? Half a minute on a laptop, no download.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

import adafed
from adafed.data import ArraysFederation

# %% [markdown]
# Data are a dictionary from client to `(x, y)`. Any arrays will do: floats or whole numbers in `x`, classes in `y`.

# %%
images, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))[:1200]
offices = {}
for k, mine in enumerate(np.array_split(order, 10)):
    x = (images[mine] / 16).astype(np.float32)
    offices[f"office {k}" if k < 8 else f"turned {k}"] = (x if k < 8 else x[:, ::-1].copy(), digits[mine])
federation = ArraysFederation("offices", offices, validation=0.1, test=0.4)

# %% [markdown]
# An experiment is a dictionary (or a TOML file with the same keys). Only the rule will differ.


# %%
def experiment(rule, rounds=60):
    return adafed.config_from(
        {
            "rounds": rounds,
            "model": {"name": "mlp", "hidden": [32]},
            "local": {"batch_size": 16, "lr": 0.1},
            "rule": rule,
            "evaluation": {"every": 10},
            "run": {"workers": 0},
        }
    )


# %% [markdown]
# `simulate` trains the federation and yields a record for each round. The last one has every client's test accuracy.

# %%
accuracies = {}
for rule in ("fedavg", "adafed"):
    *_, record = adafed.simulate(experiment(rule), federation=federation)
    last = record.evaluation().evaluated()
    accuracies[rule] = dict(zip(last.clients, 100 * last.accuracies, strict=True))

# %% [markdown]
# The mean says little. Look at the worst office, and at how far the offices are apart.

# %%
for rule, found in accuracies.items():
    values = np.array(list(found.values()))
    print(f"{rule:7} mean {values.mean():.1f} %  worst {values.min():.1f} %  deviation {values.std():.1f}")

# %% [markdown]
# Every client, from the worst served on. A fair model is a flat line; hollow marks are the two offices that are turned.

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for rule, colour in (("fedavg", "#D55E00"), ("adafed", "#0072B2")):
    ranked = sorted(accuracies[rule].items(), key=lambda pair: pair[1])
    axes.plot([value for _, value in ranked], color=colour, label=rule)
    for place, (client, value) in enumerate(ranked):
        axes.plot(place, value, "o", color=colour, markerfacecolor="white" if "turned" in client else colour)
axes.set(xlabel="offices, from the worst served on", ylabel="test accuracy, %", ylim=(0, 100))
axes.legend()
figure.savefig("quickstart.png", dpi=150)

# %% [markdown]
# What happens in a round: the rule is told each client's loss and the inner products of the updates, and answers with
# one coefficient for each. `rates` say how fast each loss falls: under AdaFed none is negative.

# %%
torch.manual_seed(0)
updates = torch.randn(4, 1000)
updates[3] = -0.5 * updates[:3].mean(0) + 0.2 * updates[3]  # a client that wants the opposite
losses = [1.0, 1.1, 0.9, 2.5]
for rule in ("fedavg", "adafed"):
    out = adafed.aggregate(adafed.rule(rule), updates, losses=losses, sizes=[100] * 4)
    print(rule, "coefficients", np.round(out.coefficients, 2), "rates", np.round(out.diagnostics.rates, 1))

# %% [markdown]
# One run is one draw of the dice. Compare over seeds (`adafed compare`), tune the server's rate for every rule (`adafed
# tune`), and read the report: [the tutorial](../docs/tutorial/data.md) goes on with this federation.
