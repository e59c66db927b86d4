from d5ray.distributed.faults.fault import Failure as Failure
from d5ray.distributed.faults.fault import Fault as Fault
from d5ray.distributed.group.late_agents import Late as Late
from d5ray.distributed.group.policies import Elasticity as Elasticity
from d5ray.distributed.group.policies import FaultPolicy as FaultPolicy
from d5ray.training.stragglers import ExponentialSlowdown as ExponentialSlowdown
from d5ray.training.stragglers import HeavyTailedSlowdown as HeavyTailedSlowdown
from d5ray.training.stragglers import Slowdown as Slowdown
