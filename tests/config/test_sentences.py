"""One sentence for everything that a configuration does not accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adafed import AdafedError, config_from, load_config, simulate
from adafed.config.merging import merged

MISTAKES: list[tuple[str, str]] = [
    ("round = 3", r"^round is unknown; the top level has name, seed, rounds, "),
    ("rounds = 0", r"^rounds = 0: it must be greater than or equal to 1$"),
    ("rounds = '3'", r"^rounds = '3': it must be a valid integer$"),
    ("rounds = 2.5", r"^rounds = 2\.5: it must be a valid integer"),
    ("seed = -1", r"^seed = -1: it must be greater than or equal to 0$"),
    ("seed = true", r"^seed = True: it must be a valid integer$"),
    ("[seeds]\nweights = 1", r"^seeds\.weights is unknown; \[seeds\] has data, model, sampling$"),
    ("data = 3", r"^data = 3: it must be a table"),
    ("[split]\ntest = 1.0", r"^split\.test = 1\.0: it must be less than 1$"),
    ("[split]\nvalidation = -0.1", r"^split\.validation = -0\.1: it must be greater than or equal to 0$"),
    ("[split]\nmode = 'outside'", r"^split\.mode = 'outside': it must be 'within' or 'published'$"),
    ("[cohort]\nfraction = 0.0", r"^cohort\.fraction = 0\.0: it must be greater than 0$"),
    ("[cohort]\nfraction = 1.5", r"^cohort\.fraction = 1\.5: it must be less than or equal to 1$"),
    ("[cohort]\nfraction = 0.5\ncount = 3", r"^\[cohort\]: give either fraction or count, not both$"),
    ("[cohort]\ncount = 0", r"^cohort\.count = 0: it must be greater than or equal to 1$"),
    ("[cohort]\nsampling = 'big'", r"^cohort\.sampling = 'big': it must be 'uniform', 'size', 'loss' or 'power-of-c"),
    ("[cohort]\ndropout = 1.0", r"^cohort\.dropout = 1\.0: it must be less than 1$"),
    ("[cohort.join]\nanna = 0", r"^cohort\.join\.anna = 0: it must be greater than or equal to 1$"),
    ("[local]\nlr = 0.0", r"^local\.lr = 0\.0: it must be greater than 0$"),
    ("[local]\nlr = nan", r"^local\.lr = nan: it must be a finite number$"),
    ("[local]\nlr = inf", r"^local\.lr = inf: it must be a finite number$"),
    ("[local]\nlearning_rate = 0.1", r"^local\.learning_rate is unknown; \[local\] has epochs, batch_size, lr, "),
    ("[local]\nbatch_size = 'all'", r"^local\.batch_size = 'all': it must be a valid integer or 'full'$"),
    ("[local]\nbatch_size = 0", r"^local\.batch_size = 0: it must be greater than or equal to 1 or 'full'$"),
    ("[local]\nmomentum = 1.0", r"^local\.momentum = 1\.0: it must be less than 1$"),
    ("[local]\nmu = -1.0", r"^local\.mu = -1\.0: it must be greater than or equal to 0$"),
    ("[local]\nloss = 'mse'", r"^local\.loss = 'mse': it must be 'cross-entropy' or 'double-softmax'$"),
    ("[local]\ntogether = 'always'", r"^local\.together = 'always': it must be 'auto' or 'never' or a valid integer$"),
    ("[server]\nrate = 0", r"^server\.rate = 0: it must be greater than 0$"),
    ("[server]\nloss = 'mean'", r"^server\.loss = 'mean': it must be 'before', 'after', 'running' or 'validation'$"),
    ("[server.optimizer]\nname = 'adm'", r"^server\.optimizer\.name = 'adm' is unknown; there are adagrad, adam, "),
    (
        "[server.optimizer]\nname = 'sgd'\nmomentum = 1.5",
        r"^server\.optimizer\.momentum is 1\.5; it must be at least 0 and less",
    ),
    ("[server.schedule]\nname = 'cosine'", r"^server\.schedule\.name = 'cosine' is unknown; there are "),
    ("rule = 'adafedd'", r"^rule\.name = 'adafedd' is unknown; there are adafed, "),
    ("[rule]\nname = 'adafed'\ngama = 1", r"^rule\.gama is unknown; rule\.name = 'adafed' has gamma, "),
    ("[rule]\nname = 'adafed'\ngamma = 'big'", r"^rule\.gamma is 'big'; it must be a number$"),
    ("[rule]\nname = 'adafed'\ngamma = -1", r"^rule\.gamma is -1"),
    ("[rule]\nname = 'adafed'\nhull = 'convex'", r"^rule\.hull is 'convex'; it must be one of 'affine', 'simplex'$"),
    (
        "[ditto]\nstrength = 1.0",
        r"^ditto\.strength is unknown; client\.rules = 'ditto' has lambda, lr, epochs, at_end$",
    ),
    ("[ditto]\nlr = 0.0", r"^ditto\.lr is 0\.0; it must be a finite number greater than 0 and at most 1e\+09$"),
    ("[ditto]\nlambda = -1.0", r"^ditto\.lambda is -1\.0; it must be a finite number at least 0 and at most 1e\+09$"),
    ("[ditto]\nlambda = 'x'", r"^ditto\.lambda is 'x'; it must be a number$"),
    ("ditto = 3", r"^ditto = 3: it must be a table with the keys of that section$"),
    ("[fedcorr]\nstages = 3", r"^fedcorr\.stages is unknown; client\.rules = 'fedcorr' has iterations, group, clean_r"),
    ("[fedcorr]\niterations = 0", r"^fedcorr\.iterations is 0; it must be a finite number at least 1$"),
    ("[fedcorr]\ngroup = 1.5", r"^fedcorr\.group is 1\.5; it must be a whole number$"),
    ("[fedcorr]\nclean_rounds = -1", r"^fedcorr\.clean_rounds is -1; it must be a finite number at least 0$"),
    ("[fedcorr]\nrelabelled = 0.0", r"^fedcorr\.relabelled is 0\.0; it must be a finite number greater than 0$"),
    (
        "[client]\nrules = ['fedprux']",
        r"^client\.rules = 'fedprux' is unknown; there are ditto, fcfc, fedcorr, feddyn, fedprox",
    ),
    (
        "[client]\nrules = [{name = 'fedprox', mu = -1}]",
        r"^fedprox\.mu is -1\.0; it must be a finite number at least 0 and at most 1e\+09$",
    ),
    ("[client]\nrules = [{name = 'fedprox', nu = 1}]", r"^fedprox\.nu is unknown; client\.rules = 'fedprox' has mu$"),
    (
        "[ditto]\n[client]\nrules = ['ditto']",
        r"^client\.rules has 'ditto', which is on already; a rule works once, so leave one out$",
    ),
    ("[evaluation]\nevery = 0", r"^evaluation\.every = 0: it must be greater than or equal to 1$"),
    ("[run]\nworkers = -1", r"^run\.workers = -1: it must be greater than or equal to 0 or 'auto'$"),
    ("[run]\nworkers = 'many'", r"^run\.workers = 'many': it must be a valid integer or 'auto'$"),
    ("[run]\nupdates_mb = 0", r"^run\.updates_mb = 0: it must be greater than or equal to 1$"),
    ("rounds = ", r"not TOML: "),
    (f"rounds = 1{'0' * 5000}", r"not TOML: "),
    (f"x = {'[' * 3000}", r"not TOML: "),
    ("name = '../up'", r"^name = '\.\./up': it must be the name of a folder: no slashes"),
    ("name = '..'", r"^name = '\.\.': it must be the name of a folder"),
    ("[server]\nrate = 1e300", r"^server\.rate = 1e\+300: it must be less than or equal to 1000000000$"),
    ("[local]\nbatch_size = 99999999999999999999", r"^local\.batch_size = 99999999999999999999: it must be less than "),
    (f"[rule]\ngamma = 1{'0' * 400}", r"^rule\.gamma has 401 digits; it must be a number below 1e308$"),
    ("[rule]\nself = 1", r"^rule\.self is unknown; rule\.name = 'adafed' has "),
]


@pytest.mark.parametrize(("text", "told"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_every_mistake_is_told_in_one_sentence(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(text)
    with pytest.raises(AdafedError, match=told) as error:
        load_config(tmp_path / "experiment.toml")
    assert "\n" not in str(error.value)
    assert "Input should" not in str(error.value)


LATER: list[tuple[dict[str, Any], str]] = [
    ({"model": {"name": "mlpp"}}, r"model\.name = 'mlpp' is unknown"),
    ({"model": {"name": "mlp", "depth": 3}}, r"model\.depth is unknown"),
    ({"model": {"name": "mlp", "hidden": 3}}, r"model\.hidden = 3 must be a list"),
    ({"model": {"name": "nowhere:Model"}}, r"model\.name = 'nowhere:Model': there is no module"),
    ({"data": {"name": "digitz"}}, r"data\.name = 'digitz' is unknown"),
    ({"partition": {"name": "dirichlet", "clients": 0}}, r"partition\.clients = 0"),
    ({"run": {"device": "gpu7"}}, r"run\.device = 'gpu7': it must be a device that torch finds here"),
    ({"run": {"device": "cuda:99"}}, r"run\.device = 'cuda:99': it must be a device that torch finds here"),
    ({"data": {"clients": 3}}, r"data\.clients is unknown; data\.name = 'digits' has flat"),
    ({"data": {"name": "cifar10", "data_dir": "/x"}}, r"data\.data_dir is unknown; data\.name = 'cifar10' has "),
    ({"data": {"name": "cifar10", "dir": 5}}, r"data\.dir is 5; it must be"),
    ({"data": {"name": "cifar10", "download": "no"}}, r"data\.download is 'no'; it must be"),
    ({"data": {"name": "synthetic"}, "split": {"limit": 3}}, r"split\.limit = 3 has no meaning for data\.name = 'syn"),
    ({"data": {"name": "synthetic"}, "split": {"stratified": True}}, r"split\.stratified = True has no meaning"),
    (
        {"partition": {"name": "iid", "clients": 4, "seed": 1}},
        r"partition\.seed = 1 follows from the rest of the configuration; leave it out",
    ),
    ({"model": {"classes": 10}}, r"^model\.classes = 10 follows from the rest of the configuration; leave it out$"),
    (
        {"model": {"name": "lstm"}, "data": {"flat": True}},
        r"model\.name = 'lstm' does not take inputs of shape \(64,\)",
    ),
    ({"model": {"hidden": [10**11]}}, r"model\.name = 'mlp' cannot be built for 10 classes: "),
    ({"run": {"device": "meta"}}, r"run\.device = 'meta': it must be a device that torch finds here"),
    (
        {"server": {"schedule": {"name": "step", "factor": 1e308, "every": 1}}, "rounds": 3},
        r"the server's rate is 1e\+308 in round 2; lower",
    ),
    ({"cohort": {"count": 21}}, r"cohort\.count = 21 is more than the federation's 20 clients"),
    ({"cohort": {"join": {"zoe": 2}}}, r"cohort\.join names client 'zoe'"),
]


@pytest.mark.parametrize(("content", "told"), LATER)
def test_what_only_the_data_can_tell_is_told_before_training(content: dict[str, Any], told: str) -> None:
    config = config_from(merged({"run": {"workers": 0}, "rounds": 1}, content))
    with pytest.raises(AdafedError, match=told) as error:
        list(simulate(config))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            {"guards": {"use": [{"name": "default", "times": 2}]}},
            "default.times is unknown; guards.use = 'default' has no",
        ),
        (
            {"guards": {"use": [{"name": "losses", "times": 0.5}]}},
            "losses.times is 0.5; it must be a finite number at l",
        ),
        ({"attack": {"use": ["lie"]}}, "attack.use = 'lie' is unknown; there are accuracy, copy, labels, loss, nan, "),
        ({"attack": {"share": 0.0}}, "attack.share = 0.0"),
    ],
)
def test_guards_and_attacks_that_are_none(content: dict[str, Any], told: str) -> None:
    with pytest.raises(AdafedError) as error:
        config_from(content)
    assert str(error.value).startswith(told)


@pytest.mark.parametrize("key", ["none_x", "nullable", "int", "lrr"])
def test_an_unknown_key_is_told_whatever_it_is_called(key: str) -> None:
    with pytest.raises(AdafedError, match=rf"local\.{key} is unknown; \[local\] has epochs"):
        config_from({"local": {key: 1}})
