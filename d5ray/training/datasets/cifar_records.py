"""CIFAR's records in both published encodings, rows of bytes and pickled dictionaries; its classes' names"""

import numpy as np
import numpy.typing as npt

from d5ray.training.datasets.plain_pickle import read_plain_pickle
from d5ray.training.datasets.published_files import unfit

IMAGE_SHAPE = (3, 32, 32)  # red, green, blue; rows; columns
IMAGE_BYTES = 3 * 32 * 32

Records = tuple[npt.NDArray[np.uint8], npt.NDArray[np.integer]]  # pixels (N, 3, 32, 32), labels (N,)


def read_binary(data: bytes, origin: str, *, label_bytes: int, label_at: int) -> Records:
    """The records of a binary file: each `label_bytes` labels, then 3,072 bytes of pixels.

    Args:
        data: the file.
        origin: its name, for the error message.
        label_bytes: labels per record: 1 in CIFAR-10; 2 in CIFAR-100, the coarse one first.
        label_at: which of them to return.

    Raises:
        DataError: the length is no multiple of a record's.
    """
    record_bytes = label_bytes + IMAGE_BYTES
    if not data or len(data) % record_bytes:
        raise unfit(origin, f"{len(data)} bytes", f"one or more whole records of {record_bytes} bytes")
    rows = np.frombuffer(data, np.uint8).reshape(-1, record_bytes)
    return rows[:, label_bytes:].reshape(-1, *IMAGE_SHAPE), rows[:, label_at]


def read_pickled(data: bytes, origin: str, *, label_key: str) -> Records:
    """The records of a pickled batch: "data" (N, 3072) uint8, and N labels under `label_key`.

    Raises:
        DataError: the pickle is refused or damaged, or holds something else.
    """
    batch = read_plain_pickle(data, origin)
    pixels, labels = batch.get("data"), batch.get(label_key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (IMAGE_BYTES,):
        raise unfit(origin, f"data: {_kind(pixels)}", f"an array (N, {IMAGE_BYTES}) of uint8")
    numbers = np.asarray(labels if _are_integers(labels) else [])
    if not len(pixels) or numbers.shape != (len(pixels),) or numbers.dtype.kind not in "iu":
        raise unfit(
            origin, f"{label_key}: {_kind(labels)}", f"one integer for each of {len(pixels)} (> 0) images"
        )
    return pixels.reshape(-1, *IMAGE_SHAPE), numbers


def _are_integers(labels: object) -> bool:
    return isinstance(labels, np.ndarray) or (
        isinstance(labels, list) and all(type(label) is int for label in labels)
    )


def _kind(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    return "nothing" if value is None else f"a {type(value).__name__}"


CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_COARSE = """
    aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
    household_furniture insects large_carnivores large_man-made_outdoor_things
    large_natural_outdoor_scenes large_omnivores_and_herbivores medium_mammals
    non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
"""
CIFAR100_COARSE = tuple(_COARSE.split())

_FINE = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle
    bowl boy bridge bus butterfly camel can castle caterpillar cattle
    chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
    dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
    lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
    mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
    plain plate poppy porcupine possum rabbit raccoon ray road rocket
    rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR100_FINE = tuple(_FINE.split())
