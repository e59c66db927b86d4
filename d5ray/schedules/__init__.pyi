from d5ray.training.schedules import Computed as Computed
from d5ray.training.schedules import Cosine as Cosine
from d5ray.training.schedules import InverseTo as InverseTo
from d5ray.training.schedules import Multiplied as Multiplied
from d5ray.training.schedules import OneCycle as OneCycle
from d5ray.training.schedules import Piecewise as Piecewise
from d5ray.training.schedules import Polynomial as Polynomial
from d5ray.training.schedules import WarmUp as WarmUp
