"""Where every random choice comes from: one seed, split by purpose, then by round and client.

A client's batch order is a hash of (seed, round, client, epoch, sample), not a stream, so it does not depend on which
process trains the client, in which order, or together with whom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Seeds:
    """Three independent seeds: who owns which samples, the first weights, and everything that happens in rounds."""

    data: int
    model: int
    sampling: int

    @classmethod
    def derived(cls, seed: int, data: int | None, model: int | None, sampling: int | None) -> Seeds:
        """From one seed; each of the three may be given instead."""
        words = np.random.SeedSequence(seed).generate_state(3, dtype=np.uint32)
        given = (data, model, sampling)
        return cls(*(int(word) if own is None else own for word, own in zip(words, given, strict=True)))


def round_generator(seed: int, round: int, purpose: int) -> np.random.Generator:
    """The server's own choices in a round (cohort, dropouts, stragglers), independent of rule and workers."""
    return np.random.default_rng([seed, round, purpose])


def client_word(seed: int, round: int, client: int) -> int:
    """64 random bits that belong to one client in one round; seeds torch for models that may draw random numbers."""
    return int(_mixed(np.array([_key(seed, round, client, 0)], dtype=np.uint64))[0])


def permutations(seed: int, round: int, clients: list[int], epoch: int, samples: int) -> npt.NDArray[np.int64]:
    """For each client the order in which it takes its samples in this epoch, one row each."""
    keys = _keys(seed, round, clients, epoch + 1)
    with np.errstate(over="ignore"):
        counters = keys[:, None] + np.arange(samples, dtype=np.uint64)[None, :] * _GOLDEN
    return np.argsort(_mixed(counters), axis=1, kind="stable")


def sample_words(
    seed: int, round: int, client: int, epoch: int, samples: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """63 random bits for each of these samples of a client, anew in every epoch."""
    key = np.uint64(_key(seed, round, client, epoch + 1, AUGMENTING))
    with np.errstate(over="ignore"):
        counters = key + samples.astype(np.uint64) * _GOLDEN
    return (_mixed(counters) >> np.uint64(1)).astype(np.int64)


AUGMENTING = 1  # sets its words apart from those of a batch order
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def _key(*words: int) -> int:
    """The words chained through SplitMix64's finaliser (Steele et al. 2014): a change in any changes all bits."""
    state = 0
    for word in words:
        state = (state + word + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def _keys(seed: int, round: int, clients: list[int], last: int) -> Words:
    """`_key(seed, round, client, last)` for many clients at once."""
    if len(clients) < 8:
        return np.array([_key(seed, round, client, last) for client in clients], dtype=np.uint64)
    with np.errstate(over="ignore"):
        states = np.uint64(_key(seed, round)) + np.array(clients, dtype=np.uint64) + _GOLDEN
        return _mixed(_mixed(states) + np.uint64(last) + _GOLDEN)


def _mixed(words: Words) -> Words:
    """SplitMix64's finaliser, elementwise."""
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
