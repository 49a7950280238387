"""The server: Flower's own, but for the line that makes the strategy."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from adafed.flower import FairStrategy
from fairdigits.task import network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = FairStrategy(  # in place of FedAvg(...)
        config["rule"],
        server_lr=config["server-lr"],
        fraction_train=config["fraction"],
        min_available_nodes=config["nodes"],
        checkpoint=config["checkpoint"] or None,
    )
    result = strategy.start(
        grid,
        initial_arrays=ArrayRecord(network().state_dict()),
        num_rounds=config["rounds"],
        train_config=ConfigRecord({"lr": config["lr"]}),
    )
    for client, numbers in strategy.evaluation.items():
        print(f"client {client}: accuracy {numbers['accuracy']:.1%}")
    for round_, metrics in result.evaluate_metrics_clientapp.items():
        print(f"after round {round_}: mean {metrics['mean']:.1%}, worst {metrics['worst-10']:.1%}")
