from d5ray.distributed.simulation.compute import ComputeTime as ComputeTime
from d5ray.distributed.simulation.compute import ConstantTime as ConstantTime
from d5ray.distributed.simulation.compute import LogNormalTime as LogNormalTime
from d5ray.distributed.simulation.compute import MeasuredTime as MeasuredTime
from d5ray.distributed.simulation.links import GroupedLinks as GroupedLinks
from d5ray.distributed.simulation.links import Links as Links
from d5ray.distributed.simulation.links import UniformLinks as UniformLinks
