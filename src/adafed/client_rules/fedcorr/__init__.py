"""FedCorr (Xu et al., CVPR 2022): find clients with wrong labels, correct the labels, then train as usual.

Three stages of one run. In the first, everyone trains in turn, and what the local models answer tells who has wrong
labels; in the second the clean clients train; in the third everybody does. Any server rule works in the last two, which
is how the paper integrates AdaFed.
"""

from adafed.client_rules.fedcorr.dimension import local_dimensions
from adafed.client_rules.fedcorr.mixture import upper
from adafed.client_rules.fedcorr.rule import FedCorr

__all__ = ["FedCorr", "local_dimensions", "upper"]
