"""synthetic(alpha, beta) of FedProx and q-FFL: alpha sets the clients' models apart, beta their inputs.

A client's samples are generated from (seed, client) when asked for, so ten thousand clients cost no more
memory than a hundred, and client k is the same whatever the number of clients.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from adafed.data.base import ClientData, Normalisation, Split, sha256
from adafed.data.partition import checked_seed
from adafed.data.split import check_fractions, counts
from adafed.errors import AdafedError

SAMPLES, MODEL, SIZES = 101, 102, 103  # streams of random numbers under one seed
MOST = {"clients": 10**6, "features": 10**6, "classes": 10**6, "samples": 10**8}
MOST_NUMBERS = 2**30  # of one client's inputs, and of its model


class SyntheticFederation:
    """y = argmax(W_k x + b_k) with x ~ N(v_k, Sigma), Sigma diagonal with Sigma_jj = j^-1.2.

    W_k, b_k ~ N(u_k, 1) with u_k ~ N(0, alpha), and v_k ~ N(B_k, 1) with B_k ~ N(0, beta); alpha and beta are
    variances. `iid` gives all clients one W, b ~ N(0, 1) and v = 0, and ignores alpha and beta. A client has
    `samples` samples, or 50 and more by a lognormal(4, 2) law.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        *,
        clients: int = 100,
        samples: int | None = None,
        features: int = 60,
        classes: int = 10,
        iid: bool = False,
        validation: float = 0.1,
        test: float = 0.1,
        seed: int = 0,
    ) -> None:
        for key, variance in (("alpha", alpha), ("beta", beta)):
            if not (math.isfinite(variance) and variance >= 0):
                raise AdafedError(f"data.{key} = {variance!r} must be a number of at least 0.")
        least = {"clients": (clients, 1), "features": (features, 1), "classes": (classes, 2)}
        if samples is not None:
            least["samples"] = (samples, 2)
        for key, (value, lowest) in least.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
                raise AdafedError(f"data.{key} = {value!r} must be a whole number of at least {lowest}.")
            if value > MOST[key]:
                raise AdafedError(f"data.{key} = {value!r} must be at most {MOST[key]}.")
        for key, value in (("classes", classes), ("samples", samples or 0)):
            if value * features > MOST_NUMBERS:
                raise AdafedError(f"data.{key} = {value} with data.features = {features} is too much for one client.")
        check_fractions(validation, test)
        self._alpha, self._beta, self._iid = float(alpha), float(beta), iid
        self._clients, self._samples = clients, samples
        self._features, self._classes = features, classes
        self._fractions = (validation, test)
        self._seed = checked_seed(seed)

    @property
    def name(self) -> str:
        return "synthetic(iid)" if self._iid else f"synthetic({self._alpha:g}, {self._beta:g})"

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(str(k) for k in range(self._clients))

    @property
    def classes(self) -> int:
        return self._classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self._features,)

    @property
    def normalisation(self) -> Normalisation:
        return Normalisation()

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Samples of each client, all parts together."""
        if self._samples is not None:
            return np.full(self._clients, self._samples, dtype=np.int64)
        random = np.random.default_rng([self._seed, 0, SIZES])
        return 50 + np.floor(random.lognormal(4.0, 2.0, size=self._clients)).astype(np.int64)

    @cached_property
    def train_sizes(self) -> npt.NDArray[np.int64]:
        return np.array([counts(int(n), *self._fractions)[0] for n in self.sizes], dtype=np.int64)

    @cached_property
    def checksum(self) -> str:
        """Of the parameters and the seed, which determine every sample."""
        shape = (self._clients, self._samples, self._features, self._classes)
        return sha256("synthetic 1", repr((self.name, self._alpha, self._beta, shape, self._fractions, self._seed)))

    def client(self, index: int) -> ClientData:
        client = range(self._clients)[index]  # IndexError beyond the end, and -1 is the last
        random = np.random.default_rng([self._seed, client, SAMPLES])
        model = np.random.default_rng([self._seed, 0, MODEL]) if self._iid else random
        u = 0.0 if self._iid else model.normal(0.0, math.sqrt(self._alpha))
        weights = model.normal(u, 1.0, size=(self._features, self._classes))
        bias = model.normal(u, 1.0, size=self._classes)
        v = np.zeros(self._features)
        if not self._iid:
            v = random.normal(random.normal(0.0, math.sqrt(self._beta)), 1.0, size=self._features)
        spread = np.arange(1, self._features + 1) ** -0.6  # the square root of j^-1.2
        inputs = v + spread * random.standard_normal((int(self.sizes[client]), self._features))
        targets = np.argmax(inputs @ weights + bias, axis=1).astype(np.int64)
        inputs = inputs.astype(np.float32)
        train, validation, _ = counts(len(targets), *self._fractions)
        cuts = [0, train, train + validation, len(targets)]
        parts = [Split(inputs[a:b], targets[a:b]) for a, b in pairwise(cuts)]
        return ClientData(*parts)
