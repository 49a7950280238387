"""A client: what it holds, and how it trains. `fair_client` adds the loss, the accuracy and the id to its replies."""

from flwr.app import Context

from adafed.flower import NodeData, fair_client
from fairdigits.task import digits, measure, network, train


def load(context: Context) -> NodeData:
    client = int(context.node_config["partition-id"])
    training, test = digits(client, int(context.node_config["num-partitions"]))
    return NodeData(client, network(), training, test, samples=len(training[1]))


app = fair_client(load, lambda model, data, config: train(model, data, config["lr"]), measure)
