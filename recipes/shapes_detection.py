"""Circles, squares and triangles are found in images: a small single-shot detector, two agents

    d5ray run shapes_detection        or        python -m d5ray.recipes.shapes_detection

The images are drawn, with noise. Quality is COCO's mean average precision, over overlaps from 0.5 to 0.95.
`coco` reads the published photographs and boxes from $D5RAY_DATA/coco, in a recipe of its own, since other
data are another contest; three categories keep the network's shape:

    from d5ray.recipes.shapes_detection import FIXED, METRICS, MUTABLE
    FIXED = FIXED | {
        "dataset": "coco", "dataset_kwargs": {"size": 64, "categories": ("cat", "dog", "person")}
    }
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main
from d5ray.recipes.models import SingleShotDetector

LISTED = ("learn", "2 minutes")  # by `d5ray list`; on two cores

BOXES = d5.operators.DefaultBoxes(grids=(8, 4), sizes=((0.2, 0.3), (0.42,)))

# Fixed components: whoever competes keeps them
FIXED = {
    "model": SingleShotDetector,
    "model_kwargs": {"classes": 3, "grids": BOXES.grids, "per_cell": BOXES.per_cell},
    "dataset": "shapes",
    "loss": d5.operators.MultiBoxLoss(BOXES),
    "train_sampler": d5.samplers.ShuffleSampler,
    "epochs": 30,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 2,
    "batch_size": 16,  # of one agent
    "events": (d5.events.DetectionQuality(BOXES),),
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.CPUDevice()},
    "optimizer": d5.optimizers.Adam,
    "optimizer_args": (0.002,),
    "distributed": d5.optimizers.AllreduceSGD,
    "communicator": "auto",  # shared memory on one node
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    d5.metrics.MeanAveragePrecision() >= 0.5,
    d5.metrics.AveragePrecision50() >= 0.8,
    d5.metrics.StepTime() <= 0.5,  # s, the median over steps
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
