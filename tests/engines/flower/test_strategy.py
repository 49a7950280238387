"""The strategy without processes: dropping in, diagnostics, cohorts, checkpoints, and every fault a client can have."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx, QFedAvg, Result, Strategy
from pretend import PretendGrid

import adafed
from adafed import AdafedError, aggregate_states
from adafed.algebra.gram import NOT_FINITE
from adafed.config.sections import CohortSection
from adafed.engines.flower.checkpoint import StateKeeper
from adafed.flower import FairStrategy, NodeData, fair_client
from adafed.rounds.cohort import Sampler

NODES = 4
SIZES = [20, 30, 40, 50]


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def samples(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(client)
    inputs = torch.tensor(random.normal(client, 1.0, (SIZES[client], 3)), dtype=torch.float32)
    return inputs, torch.tensor(random.integers(0, 2, SIZES[client]))


def load(context: Context) -> NodeData:
    client = int(context.node_config["partition-id"])
    return NodeData(client, network(), samples(client), samples(client), SIZES[client])


def train(model: torch.nn.Module, data: Any, config: Mapping[str, Any]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data[0]), data[1]).backward()
    optimizer.step()


def measure(model: torch.nn.Module, data: Any) -> tuple[float, float]:
    outputs = model(data[0])
    loss = torch.nn.functional.cross_entropy(outputs, data[1])
    return float(loss), float((outputs.argmax(1) == data[1]).float().mean())


APP = fair_client(load, train, measure)


def first() -> ArrayRecord:
    return ArrayRecord(network().state_dict())


def run(
    strategy: FairStrategy, rounds: int = 1, spoil: Any = None, app: ClientApp = APP, seed: int = 0
) -> tuple[Result, PretendGrid]:
    grid = PretendGrid(app, NODES, seed=seed, spoil=spoil)
    return strategy.start(grid, first(), num_rounds=rounds, timeout=5.0), grid


def same(one: ArrayRecord, other: ArrayRecord) -> bool:
    return list(one) == list(other) and all(np.array_equal(one[name].numpy(), other[name].numpy()) for name in one)


# Dropping in


@pytest.mark.parametrize("name", adafed.rules())
def test_every_registered_rule_trains(name: str) -> None:
    strategy = FairStrategy(name, local_lr=0.1)
    result, _ = run(strategy, rounds=2)
    assert isinstance(strategy, Strategy)
    assert not same(result.arrays, first())
    assert list(result.arrays) == list(first())
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())


@pytest.mark.parametrize("guards", [(), "default"])
def test_a_round_is_the_public_aggregation_of_what_clients_sent(guards: Any) -> None:
    heard: list[dict[str, Any]] = []

    def listen(client: int, reply: Message) -> Message:
        heard.append({"state": reply.content["arrays"].to_torch_state_dict(), **reply.content["metrics"]})
        return reply

    result, _ = run(FairStrategy("adafed", server_lr=0.7, guards=guards), spoil=listen)
    heard.sort(key=lambda one: one["client-id"])
    facts = {"losses": [one["loss"] for one in heard], "sizes": [one["num-examples"] for one in heard]}
    before = first().to_torch_state_dict()
    found = aggregate_states(adafed.rule("adafed"), before, [one["state"] for one in heard], **facts, guards=guards)
    for name, value in found.applied(before, 0.7).items():
        torch.testing.assert_close(torch.tensor(result.arrays[name].numpy()), value)


def test_the_order_of_replies_and_the_numbers_of_nodes_change_no_bit() -> None:
    outcomes = [run(FairStrategy("adafed"), rounds=2, seed=seed)[0].arrays for seed in range(3)]
    assert all(same(outcomes[0], other) for other in outcomes[1:])


def test_a_plain_flower_client_needs_two_more_numbers() -> None:
    app = ClientApp()

    @app.train()
    def plain(message: Message, context: Context) -> Message:
        mine = load(context)
        mine.model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        mine.model.train()
        train(mine.model, mine.train, {})
        told = {"num-examples": mine.samples, "loss": 1.0 + mine.client, "client-id": mine.client}
        content = {"arrays": ArrayRecord(mine.model.state_dict()), "metrics": MetricRecord(told)}
        return Message(RecordDict(content), reply_to=message)

    result, _ = run(FairStrategy("adafed", evaluate_every=-1), app=app)
    assert not same(result.arrays, first())
    assert result.train_metrics_clientapp[1]["client-ids"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rule": "qffl"}, "local_lr is None and rule qffl needs it"),
        ({"rule": "qffl", "local_lr": -1.0}, "local_lr is -1.0; it must be a number above 0"),
        ({"rule": "qffl", "local_lr": "0.1"}, "local_lr is '0.1'; it must be a number above 0"),
        ({"rule": "qffl", "local_lr": float("nan")}, "local_lr is nan; it must be a number above 0"),
        ({"rule": type(adafed.rule("fedavg"))}, "rule is <class .*; give a name, or what adafed.rule makes of one"),
        ({"rule": 0.5}, "rule is 0.5; give a name"),
        ({"server_optimizer": 5}, "server_optimizer is 5; give a name"),
        ({"server_lr": "1"}, "server_lr is '1'; it must be a number above 0"),
        ({"fraction_train": "0.5"}, "fraction_train is '0.5'; it must be a number above 0 and at most 1"),
        ({"seed": "a"}, "seed is 'a'; it must be a whole number, at least 0"),
        ({"max_samples": -1}, "max_samples is -1; it must be a whole number, at least 1"),
        ({"evaluate_every": -2}, "evaluate_every is -2; it must be a whole number, at least -1"),
        ({"min_available_nodes": 0}, "min_available_nodes is 0; it must be a whole number, at least 1"),
    ],
    ids=str,
)
def test_mistakes_are_told_before_anybody_trains(given: dict[str, Any], told: str) -> None:
    with pytest.raises(AdafedError, match=told):
        FairStrategy(**given)


@pytest.mark.parametrize("theirs", [FedAvg, FedAvgM, FedAdam, FedProx, QFedAvg])
def test_what_flowers_strategies_take_is_taken_or_told_what_to_use_instead(theirs: Callable[..., Strategy]) -> None:
    given: dict[str, Any] = dict.fromkeys(signature(theirs).parameters)
    taken = signature(FairStrategy).parameters
    refused = [key for key in given if key not in taken]
    assert "fraction_evaluate" in refused
    with pytest.raises(AdafedError) as raised:
        FairStrategy(**{key: given[key] for key in refused})
    told = str(raised.value).splitlines()
    assert [one.partition(";")[0] for one in told] == [f"FairStrategy has no {key}" for key in refused]
    assert all("; leave it out" in one or "; give" in one for one in told)
    instead = {name for one in told for name in re.findall(r"\w+_\w+", one.partition("; ")[2])}
    assert not instead & set(refused)


def test_an_argument_that_is_written_wrongly_is_guessed() -> None:
    wrong: dict[str, Any] = {"evaluate_evry": 1}
    with pytest.raises(AdafedError, match=r"^FairStrategy has no evaluate_evry; did you mean evaluate_every\?$"):
        FairStrategy(**wrong)
    with pytest.raises(AdafedError, match=r"^FairStrategy has no x; it takes 'rule', .*, 'server_step'$"):
        FairStrategy(x=1)  # type: ignore[arg-type]


def test_it_also_works_in_flowers_own_loop() -> None:
    strategy, grid = FairStrategy("fedavg"), PretendGrid(APP, NODES)
    theirs = Strategy.start(strategy, grid, first(), num_rounds=2)
    assert same(theirs.arrays, run(FairStrategy("fedavg"), rounds=2)[0].arrays)


def test_diagnostics_are_metrics_in_the_order_of_ids() -> None:
    result, _ = run(FairStrategy("adafed"))
    metrics = result.train_metrics_clientapp[1]
    assert metrics["client-ids"] == [0, 1, 2, 3]
    assert metrics["clients"] == 4
    assert metrics["left-out"] == 0
    assert len(metrics["coefficients"]) == len(metrics["rates"]) == len(metrics["losses"]) == 4
    assert metrics["worst-loss"] == max(metrics["losses"])
    assert metrics["norm"] > 0


def test_evaluation_comes_once_and_keeps_every_client() -> None:
    strategy = FairStrategy("adafed")
    result, grid = run(strategy, rounds=3)
    kinds = [message.metadata.message_type for message in grid.sent]
    assert kinds == ["train"] * 3 * NODES + ["evaluate"] * NODES  # a round is one phase
    assert list(result.evaluate_metrics_clientapp) == [3]
    assert list(strategy.evaluation) == [0, 1, 2, 3]
    accuracies = [numbers["accuracy"] for numbers in strategy.evaluation.values()]
    metrics = result.evaluate_metrics_clientapp[3]
    assert metrics["accuracies"] == accuracies
    assert metrics["mean"] == pytest.approx(np.mean(accuracies))


def test_every_client_says_how_many_test_samples_it_has() -> None:
    strategy = FairStrategy("fedavg")
    run(strategy)
    assert [numbers["num-examples"] for numbers in strategy.evaluation.values()] == SIZES
    counted = fair_client(lambda context: replace(load(context), test_samples=7), train, measure)
    run(strategy, app=counted)
    assert {numbers["num-examples"] for numbers in strategy.evaluation.values()} == {7}


def test_test_data_that_cannot_be_counted_are_told(caplog: pytest.LogCaptureFixture) -> None:
    def endless(context: Context) -> NodeData:
        return replace(load(context), test=iter(()))

    app = fair_client(endless, train, lambda model, data: (0.0, 0.0))
    with caplog.at_level(logging.WARNING):
        result, _ = run(FairStrategy("fedavg"), app=app)
    assert not result.evaluate_metrics_clientapp
    assert "cannot be counted; give test_samples" in caplog.text


@pytest.mark.parametrize("count", [0.5, 10.5, float("nan"), float("inf"), -3.0])
def test_a_count_of_test_samples_that_is_none_costs_the_client_its_part(
    count: float, caplog: pytest.LogCaptureFixture
) -> None:
    def lying(context: Context) -> NodeData:
        mine = load(context)
        return replace(mine, test_samples=count) if mine.client == 1 else mine  # type: ignore[arg-type]

    with caplog.at_level(logging.WARNING):
        result, _ = run(FairStrategy("fedavg"), app=fair_client(lying, train, measure))
    assert len(result.evaluate_metrics_clientapp[1]["accuracies"]) == NODES - 1
    assert "client 1 left out: sample count is" in caplog.text


@pytest.mark.parametrize("lacks", ["accuracy", "num-examples"])
def test_an_evaluation_under_other_names_is_told_with_what_it_holds(
    lacks: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = ClientApp()
    app.train()(lambda message, context: APP(message, context))
    told = {"num-examples": 10, "accuracy": 0.5, "eval_loss": 1.0, "eval_acc": 0.5}

    @app.evaluate()
    def own(message: Message, context: Context) -> Message:
        metrics = MetricRecord({key: value for key, value in told.items() if key != lacks})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    with caplog.at_level(logging.WARNING):
        result, _ = run(FairStrategy("adafed"), app=app)
    assert not result.evaluate_metrics_clientapp
    held = ", ".join(sorted(told.keys() - {lacks}))
    wanted = f'left out: the reply to evaluate has no "{lacks}"; it has {held}'
    assert len([one for one in caplog.messages if one.endswith(wanted)]) == NODES


@pytest.mark.parametrize(("key", "value"), [("steps", float("nan")), ("steps", float("inf")), ("accuracy", 1e308)])
@pytest.mark.parametrize("rule", ["adafed", "fedfa"])
def test_numbers_beyond_reason_do_not_end_the_server(rule: str, key: str, value: float) -> None:
    def spoil(client: int, reply: Message) -> Message:
        if client in (1, 2) and "arrays" in reply.content.array_records:
            reply.content["metrics"][key] = value
        return reply

    result, _ = run(FairStrategy(rule, local_lr=0.1), rounds=2, spoil=spoil)
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())


def test_a_central_evaluation_is_called_as_in_flower() -> None:
    seen = []

    def central(round_: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(round_)
        return MetricRecord({"round": round_})

    grid = PretendGrid(APP, NODES)
    result = FairStrategy("fedavg").start(grid, first(), num_rounds=2, evaluate_fn=central)
    assert seen == [0, 1, 2] == list(result.evaluate_metrics_serverapp)


def test_the_servers_config_reaches_clients() -> None:
    grid = PretendGrid(APP, NODES)
    FairStrategy("fedavg").start(grid, first(), num_rounds=2, train_config=ConfigRecord({"lr": 0.5}))
    configs = [m.content["config"] for m in grid.sent if m.metadata.message_type == "train"]
    assert {config["lr"] for config in configs} == {0.5}
    assert {config["server-round"] for config in configs} == {1, 2}


# Cohorts


@pytest.mark.parametrize("seed", [0, 7])
def test_partial_cohorts_are_the_simulators(seed: int) -> None:
    strategy = FairStrategy("adafed", fraction_train=0.5, seed=seed)
    result, grid = run(strategy, rounds=4, seed=seed + 10)
    sampler = Sampler(CohortSection(fraction=0.5), ("0", "1", "2", "3"), np.array(SIZES), seed)
    for t in range(1, 5):
        assert tuple(result.train_metrics_clientapp[t]["client-ids"]) == sampler.cohort(t).clients
    assert sum(m.metadata.message_type == "query" for m in grid.sent) == NODES  # the handshake is done once


def test_clients_that_were_not_asked_are_remembered() -> None:
    strategy = FairStrategy("adafed", fraction_train=0.5, memory="all")
    run(strategy, rounds=4)
    assert strategy.state is not None
    assert strategy.state.rule_state is not None
    heard = {client for t in range(1, 5) for client in _cohort(t)}
    assert {client for client, _ in strategy.state.rule_state.memory} == {str(client) for client in heard}
    plain, _ = run(FairStrategy("adafed", fraction_train=0.5), rounds=4)
    with_memory, _ = run(FairStrategy("adafed", fraction_train=0.5, memory="all"), rounds=4)
    assert not same(plain.arrays, with_memory.arrays)


def _cohort(round: int) -> tuple[int, ...]:
    return Sampler(CohortSection(fraction=0.5), ("0", "1", "2", "3"), np.array(SIZES), 0).cohort(round).clients


def test_a_safe_step_is_another_phase_and_harms_nobody() -> None:
    def linear(context: Context) -> NodeData:
        return replace(load(context), model=torch.nn.Linear(3, 2))

    torch.manual_seed(1)
    begun = torch.nn.Linear(3, 2)
    strategy, grid = FairStrategy("adafed", server_step="safe", server_lr=64.0), PretendGrid(APP, NODES)
    grid.app = fair_client(linear, train, measure)
    result = strategy.start(grid, ArrayRecord(begun.state_dict()), num_rounds=1, timeout=5.0)
    assert strategy.record is not None
    assert strategy.record.rho == 1.0
    assert 0 < strategy.record.server_rate < 64.0
    kinds = [message.metadata.message_type for message in grid.sent]
    assert kinds.count("train") == NODES
    assert NODES <= kinds.count("query.losses") <= 3 * NODES
    stepped = torch.nn.Linear(3, 2)
    stepped.load_state_dict(result.arrays.to_torch_state_dict())
    for one in strategy.record.participants:  # what they told is the loss of the model that was taken
        with torch.no_grad():
            before, after = (measure(model, samples(int(one.client)))[0] for model in (begun, stepped))
        assert (one.before, one.stepped) == (pytest.approx(before), pytest.approx(after))
        assert after <= before


def test_apps_that_cannot_tell_their_losses_are_not_stepped_for(caplog: pytest.LogCaptureFixture) -> None:
    plain = ClientApp()
    plain.train()(APP._registered_funcs["train.default"])
    strategy = FairStrategy("fedavg", server_step="safe")
    run(strategy, app=plain)
    assert strategy.record is not None
    assert strategy.record.skipped == "no client told its loss at the model that a step would lead to"
    assert "did not tell its losses" in caplog.text


def test_ids_need_not_count_from_zero() -> None:
    def far(context: Context) -> NodeData:
        mine = load(context)
        return replace(mine, client=100 + 10 * mine.client)

    result, _ = run(FairStrategy("adafed", fraction_train=0.5), app=fair_client(far, train, measure))
    assert set(result.train_metrics_clientapp[1]["client-ids"]) < {100, 110, 120, 130}


def test_a_client_whose_node_was_restarted_is_found_again() -> None:
    strategy, grid = FairStrategy("adafed", fraction_train=0.99), PretendGrid(APP, NODES)
    strategy.start(grid, first(), num_rounds=1)
    old = strategy.conversation.roster.holders[2]
    grid.disconnect(2)
    new = grid.connect(2)
    strategy.start(grid, first(), num_rounds=2)
    assert old != new == strategy.conversation.roster.holders[2]


def test_apps_without_a_handshake_are_asked_all_together(caplog: pytest.LogCaptureFixture) -> None:
    app = ClientApp()

    @app.train()
    def plain(message: Message, context: Context) -> Message:
        return APP(message, context)

    result, grid = run(FairStrategy("fedavg", fraction_train=0.5, evaluate_every=-1), app=app, rounds=6)
    assert result.train_metrics_clientapp[1]["client-ids"] == [0, 1, 2, 3]
    assert "all 4 nodes are asked" in caplog.text
    assert len(result.train_metrics_clientapp[2]["client-ids"]) == 2  # the first replies told who is who
    assert sum(m.metadata.message_type == "query" for m in grid.sent) == 3 * NODES


# Faults: the round goes on without the client, or is skipped, and the log says who and why


def only(victim: int, change: Callable[[Message], Message | None]) -> Callable[[int, Message], Message | None]:
    return lambda client, reply: change(reply) if client == victim else reply


def metric(key: str, value: Any) -> Callable[[Message], Message]:
    def change(reply: Message) -> Message:
        reply.content["metrics"][key] = value
        return reply

    return change


def array(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Message], Message]:
    def spoiled(reply: Message) -> Message:
        record = reply.content["arrays"]
        name = next(iter(record))
        record[name] = Array(change(record[name].numpy()))
        return reply

    return spoiled


def without(kind: str) -> Callable[[Message], Message]:
    def change(reply: Message) -> Message:
        del reply.content[kind]
        return reply

    return change


def missing_array(reply: Message) -> Message:
    del reply.content["arrays"]["0.weight"]
    return reply


def dishonest_array(reply: Message) -> Message:
    """Says it has the right shape and dtype, and holds something else."""
    good = reply.content["arrays"]["0.weight"]
    bad = Array(np.zeros(3, dtype=np.float64))
    reply.content["arrays"]["0.weight"] = Array(good.dtype, good.shape, bad.stype, bad.data)
    return reply


def garbage(reply: Message) -> Message:
    good = reply.content["arrays"]["0.weight"]
    reply.content["arrays"]["0.weight"] = Array(good.dtype, good.shape, good.stype, b"\x80\x04 not an array")
    return reply


def failed(reply: Message) -> Message:
    """As the SuperLink words it: the error comes from itself, and only the message it answers tells the node."""
    error = Message(Error(code=5, reason="Node Unavailable"), reply_to=reply)
    error.metadata.__dict__["_src_node_id"] = 1
    error.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return error


def statistics(reply: Message) -> Message:
    record = reply.content["arrays"]
    record["1.running_var"] = Array(record["1.running_var"].numpy() * np.nan)
    return reply


FAULTS: dict[str, tuple[Callable[[Message], Message | None], str]] = {
    "a node killed in mid-round": (failed, "Node Unavailable"),
    "no reply at all": (lambda reply: None, "no reply within"),
    "NaN in the update": (array(lambda a: a * np.nan), NOT_FINITE),
    "infinity in the update": (array(lambda a: a + np.inf), NOT_FINITE),
    "NaN in the statistics": (statistics, "statistics hold NaN"),
    "NaN as the loss": (metric("loss", float("nan")), "loss is nan"),
    "a wrong shape": (array(lambda a: a[:2]), "has shape (2, 3) and must have (4, 3)"),
    "a wrong dtype": (array(lambda a: a.astype(np.float64)), "is float64 and must be float32"),
    "an integer array": (array(lambda a: a.astype(np.int64)), "is int64 and must be float32"),
    "a missing array": (missing_array, "0.weight is missing"),
    "an array that lies": (dishonest_array, "has shape (3,)"),
    "bytes that are no array": (garbage, "cannot be read"),
    "no arrays": (without("arrays"), "no arrays"),
    "no metrics": (without("metrics"), "no metrics"),
    "a sample count above what was registered": (metric("num-examples", 10**9), "registered with 40"),
    "a negative sample count": (metric("num-examples", -5), "sample count is -5"),
    "a sample count of NaN": (metric("num-examples", float("nan")), "sample count is nan"),
    "another client's id": (metric("client-id", 3), "which node"),
    "an id nobody knows": (metric("client-id", 99), "was not asked"),
    "an id that is no number of a client": (metric("client-id", -1), "not a whole number"),
    "no loss": (lambda reply: _without_loss(reply), 'the reply to train has no "loss"; it has accuracy, client-id,'),
}


def _without_loss(reply: Message) -> Message:
    del reply.content["metrics"]["loss"]
    return reply


@pytest.mark.parametrize("fault", FAULTS)
def test_the_round_goes_on_without_a_faulty_client(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="flwr")
    change, told = FAULTS[fault]
    strategy = FairStrategy("adafed", fraction_train=0.99)
    result, _ = run(strategy, spoil=only(2, change))
    assert result.train_metrics_clientapp[1]["clients"] == 3
    assert told in caplog.text
    assert "client 2" in caplog.text
    assert strategy.record is not None
    participants = {one.client: one for one in strategy.record.participants}
    assert participants["2"].dropped
    assert not any(participants[client].dropped for client in ("0", "1", "3"))
    # The others count as if the faulty client had not been there.
    reference, _ = run(FairStrategy("adafed", fraction_train=0.99), spoil=only(2, lambda reply: None))
    assert same(result.arrays, reference.arrays)


@pytest.mark.parametrize("fault", FAULTS)
def test_with_nobody_left_the_model_stays_as_it_was(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    if fault == "another client's id":
        pytest.skip("one of the clients would be telling the truth")
    strategy = FairStrategy("adafed", fraction_train=0.99, max_samples=10**6)
    result, _ = run(strategy, spoil=lambda client, reply: FAULTS[fault][0](reply))
    assert same(result.arrays, first())
    assert result.train_metrics_clientapp == {}
    assert strategy.state is not None
    assert strategy.state.round == 1
    assert "round 1 changed nothing" in caplog.text


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_survived_without_a_handshake_too(fault: str) -> None:
    change, _ = FAULTS[fault]
    result, _ = run(FairStrategy("adafed", max_samples=1000), spoil=only(2, change))
    kept = 4 if fault == "an id nobody knows" else 2 if fault == "another client's id" else 3
    assert result.train_metrics_clientapp[1]["clients"] == kept
    assert all(np.isfinite(one.numpy()).all() for one in result.arrays.values())


def test_a_count_that_grows_after_the_first_round_is_a_lie(caplog: pytest.LogCaptureFixture) -> None:
    rounds = iter([0] * NODES + [1] * NODES)

    def grown(client: int, reply: Message) -> Message:
        return metric("num-examples", 41)(reply) if next(rounds) and client == 2 else reply

    result, _ = run(FairStrategy("fedavg"), rounds=2, spoil=grown)
    assert [result.train_metrics_clientapp[t]["clients"] for t in (1, 2)] == [4, 3]
    assert "client 2 left out: says 41 samples and registered with 40" in caplog.text


def test_a_cap_bounds_what_a_client_registers_with(caplog: pytest.LogCaptureFixture) -> None:
    result, _ = run(FairStrategy("fedavg", fraction_train=0.99, max_samples=45))
    assert result.train_metrics_clientapp[1]["client-ids"] == [0, 1, 2]
    assert "at most 45" in caplog.text


def test_two_nodes_cannot_be_one_client(caplog: pytest.LogCaptureFixture) -> None:
    def alike(context: Context) -> NodeData:
        return replace(load(context), client=0)

    result, _ = run(FairStrategy("fedavg"), app=fair_client(alike, train, measure))
    assert same(result.arrays, first())
    assert "claimed by 4 replies" in caplog.text


def test_a_node_that_has_gone_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = FairStrategy("adafed", fraction_train=0.99, min_available_nodes=NODES), PretendGrid(APP, NODES)

    def lost(client: int, reply: Message) -> Message | None:
        if client == 1:
            grid.disconnect(1)
            return failed(reply)
        return reply

    grid.spoil = lost
    result = strategy.start(grid, first(), num_rounds=2, timeout=5.0)
    assert result.train_metrics_clientapp[2]["client-ids"] == [0, 2, 3]
    assert "round 2: client 1 left out: no connected node holds it" in caplog.text


def test_a_straggler_past_the_timeout_is_back_in_the_next_round(caplog: pytest.LogCaptureFixture) -> None:
    late = iter([True, False])
    result, _ = run(
        FairStrategy("adafed", fraction_train=0.99),
        rounds=2,
        spoil=lambda client, reply: None if client == 1 and next(late) else reply,
    )
    assert [result.train_metrics_clientapp[t]["client-ids"] for t in (1, 2)] == [[0, 2, 3], [0, 1, 2, 3]]
    assert "round 1: client 1 left out: no reply within 5 s" in caplog.text


def test_a_client_that_raises_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def broken(model: torch.nn.Module, data: Any, config: Mapping[str, Any]) -> None:
        if len(data[1]) == SIZES[3]:
            raise ValueError("the disk is gone")
        train(model, data, config)

    result, _ = run(FairStrategy("adafed", fraction_train=0.99), app=fair_client(load, broken, measure))
    assert result.train_metrics_clientapp[1]["client-ids"] == [0, 1, 2]
    assert "client 3 left out" in caplog.text
    assert "the disk is gone" in caplog.text


# Checkpoint and resume


@pytest.mark.parametrize("name", ["adafed", "fedfv", "afl"])
@pytest.mark.parametrize(("optimizer", "memory"), [("sgd", 0), ("adam", 0), ("sgd", "all"), ("adam", 1)])
def test_a_run_in_pieces_gives_the_same_bits(name: str, optimizer: str, memory: Any, tmp_path: Path) -> None:
    def strategy(folder: str) -> FairStrategy:
        more: dict[str, Any] = {"memory": memory, "checkpoint": tmp_path / folder}
        return FairStrategy(name, server_optimizer=optimizer, server_lr=0.1, fraction_train=0.5, **more)

    whole, _ = run(strategy("whole"), rounds=4)
    run(strategy("pieces"), rounds=1, seed=1)
    run(strategy("pieces"), rounds=3, seed=2)
    pieces, _ = run(strategy("pieces"), rounds=4, seed=3)
    assert same(whole.arrays, pieces.arrays)


def test_a_server_that_dies_in_a_round_repeats_that_round_only(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def dies(client: int, reply: Message) -> Message:
        if grid.sent[-1].content["config"]["server-round"] == 3:
            raise Killed
        return reply

    grid = PretendGrid(APP, NODES, spoil=dies)
    with pytest.raises(Killed):
        FairStrategy("adafed", checkpoint=tmp_path).start(grid, first(), num_rounds=4)
    resumed = PretendGrid(APP, NODES)
    result = FairStrategy("adafed", checkpoint=tmp_path).start(resumed, first(), num_rounds=4)
    assert {m.content["config"]["server-round"] for m in resumed.sent} == {3, 4}
    assert same(result.arrays, run(FairStrategy("adafed"), rounds=4)[0].arrays)


IN_USE = "is in use by another server; wait for it to end or choose another folder"


def test_a_second_server_does_not_have_the_folder_of_one_that_trains(tmp_path: Path) -> None:
    """Nor does it take what the first is about to rename into place."""
    half_written, refused = tmp_path / ".round-00000009.safetensors.1.partial", []

    def second(client: int, reply: Message) -> Message:
        half_written.touch()
        with pytest.raises(AdafedError) as found:
            run(FairStrategy("fedavg", checkpoint=tmp_path, memory="all"))
        refused.append(str(found.value))
        return reply

    result, _ = run(FairStrategy("adafed", checkpoint=tmp_path, memory="all"), rounds=3, spoil=second)
    assert set(refused) == {f"{tmp_path} {IN_USE}"}
    assert half_written.exists()
    assert same(result.arrays, run(FairStrategy("adafed", memory="all"), rounds=3)[0].arrays)


def test_a_folder_is_free_again_when_training_has_ended_or_failed(tmp_path: Path) -> None:
    """Whoever still holds the strategy: it goes on from there, too, from what others have made of it."""

    def fails(client: int, reply: Message) -> Message:
        raise KeyboardInterrupt

    def strategy() -> FairStrategy:
        return FairStrategy("adafed", checkpoint=tmp_path, memory="all", fraction_train=0.5)

    both = strategy(), strategy()
    for rounds in range(1, 7):
        with pytest.raises(KeyboardInterrupt):
            run(both[0], rounds=rounds, spoil=fails)
        result, _ = run(both[rounds % 2], rounds=rounds)
    whole, _ = run(FairStrategy("adafed", memory="all", fraction_train=0.5), rounds=6)
    assert same(result.arrays, whole.arrays)


def test_in_another_loop_a_strategy_has_its_folder_until_it_is_gone(tmp_path: Path) -> None:
    strategy = FairStrategy("adafed", checkpoint=tmp_path)
    Strategy.start(strategy, PretendGrid(APP, NODES), first(), num_rounds=1)
    with pytest.raises(AdafedError, match=IN_USE):
        run(FairStrategy("adafed", checkpoint=tmp_path))
    strategy.itself = strategy  # type: ignore[attr-defined]  # gone with the garbage only
    del strategy
    run(FairStrategy("adafed", checkpoint=tmp_path))


HOLDER = """
import sys, time
from adafed.engines.flower.checkpoint import StateKeeper
keeper = StateKeeper(sys.argv[1])
keeper.restored()
print("held", flush=True)
time.sleep(600)
"""


def test_a_killed_server_leaves_neither_its_lock_nor_half_a_file(tmp_path: Path) -> None:
    mine, others = tmp_path / ".round-00000003.safetensors.99999.partial", tmp_path / ".somebody.else"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"held\n"
            mine.touch()
            others.touch()
            with pytest.raises(AdafedError, match=IN_USE):
                run(FairStrategy("adafed", checkpoint=tmp_path))
        finally:
            server.kill()
    run(FairStrategy("adafed", checkpoint=tmp_path))
    assert not mine.exists()
    assert others.exists()


def test_what_a_forked_process_inherits_does_not_hold_the_folder(tmp_path: Path) -> None:
    """A loader's worker may live longer than the training that it was made in."""
    keeper = StateKeeper(tmp_path)
    keeper.restored()
    with subprocess.Popen(["sleep", "600"], pass_fds=_descriptors(tmp_path / "lock")) as worker:
        try:
            with pytest.raises(AdafedError, match=IN_USE):
                StateKeeper(tmp_path).restored()
            keeper.release()
            StateKeeper(tmp_path).restored()
        finally:
            worker.kill()


def _descriptors(file: Path) -> list[int]:
    """Of this process, for a file."""
    there = [int(one.name) for one in Path("/proc/self/fd").iterdir() if one.exists() and one.samefile(file)]
    assert there
    return there


def test_a_torn_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    run(FairStrategy("adafed", checkpoint=tmp_path), rounds=3)
    newest = max(tmp_path.glob("round-*"))
    newest.write_bytes(newest.read_bytes()[:100])
    result, grid = run(FairStrategy("adafed", checkpoint=tmp_path), rounds=3)
    assert {m.content["config"]["server-round"] for m in grid.sent} == {3}
    assert same(result.arrays, run(FairStrategy("adafed"), rounds=3)[0].arrays)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    run(FairStrategy("adafed", checkpoint=tmp_path))
    other = ArrayRecord(torch.nn.Linear(2, 2).state_dict())
    with pytest.raises(AdafedError, match="checkpoint holds a model of"):
        FairStrategy("adafed", checkpoint=tmp_path).start(PretendGrid(APP, NODES), other)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rule": "fedmean"}, "rule.name = 'fedmean' is unknown"),
        ({"server_lr": 0.0}, "server_lr is 0.0"),
        ({"server_lr": float("inf")}, "server_lr is inf"),
        ({"seed": -1}, "seed is -1"),
        ({"fraction_train": 1.5}, "fraction_train is 1.5"),
        ({"loss": "last"}, "loss is 'last'"),
        ({"server_optimizer": "lion"}, "lion"),
        ({"server_step": "long"}, "server_step is 'long'"),
        ({"server_step": "safe", "server_optimizer": "adam"}, "does not go with server.optimizer = 'adam'"),
    ],
)
def test_mistakes_are_told_in_a_sentence(options: dict[str, Any], told: str) -> None:
    with pytest.raises(AdafedError, match=told):
        FairStrategy(**options)


def test_a_rate_that_is_none_is_told_before_clients_are_asked() -> None:
    strategy, grid = FairStrategy("qffl", local_lr=lambda t: None), PretendGrid(APP, NODES)  # type: ignore[arg-type,return-value]
    with pytest.raises(AdafedError, match=r"^local_lr\(1\) is None; it must be a number above 0$"):
        strategy.configure_train(1, first(), ConfigRecord(), grid)


def test_rules_are_told_how_many_clients_have_registered() -> None:
    """AFL's share of those that were not heard yet is the simulator's."""
    strategy = FairStrategy("afl", fraction_train=0.5)
    run(strategy)
    assert strategy.state is not None
    assert strategy.state.rule_state is not None
    numbers = strategy.state.rule_state.numbers
    assert numbers["unseen"] + len(numbers["shares"]) == NODES


def test_another_loop_is_given_the_saved_model_to_go_on_from(tmp_path: Path) -> None:
    run(FairStrategy("adafed", checkpoint=tmp_path / "state"), rounds=2)
    strategy = FairStrategy("adafed", checkpoint=tmp_path / "state")
    messages = list(strategy.configure_train(3, first(), ConfigRecord(), PretendGrid(APP, NODES)))
    assert strategy.state is not None
    assert strategy.arrays is not None
    wanted = strategy.arrays.record(strategy.state.parameters)
    assert not same(wanted, first())
    assert all(same(one.content["arrays"], wanted) for one in messages)


def test_test_data_of_numpy_are_counted_like_tensors() -> None:
    from adafed.engines.flower.client import _count

    assert _count(NodeData(0, network(), None, (np.zeros((50, 3)), np.zeros(50)), 20)) == 50
