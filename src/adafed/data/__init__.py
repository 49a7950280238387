"""Federations: data sets shared out to clients, synthetic clients, and the user's own."""

from adafed.data.arrays import ArraysFederation
from adafed.data.base import ClientData, Dataset, Federation, Normalisation, Split
from adafed.data.embedded import digits
from adafed.data.federation import IndexedFederation, federate
from adafed.data.folder import FolderFederation
from adafed.data.function import from_function
from adafed.data.synthetic import SyntheticFederation

__all__ = [
    "ArraysFederation",
    "ClientData",
    "Dataset",
    "Federation",
    "FolderFederation",
    "IndexedFederation",
    "Normalisation",
    "Split",
    "SyntheticFederation",
    "digits",
    "federate",
    "from_function",
]
