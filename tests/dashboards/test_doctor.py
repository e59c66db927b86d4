"""Claims about `d5ray doctor`: it tells which sensors a run could read here, and why it could not"""

from d5ray.dashboards.doctor import GOOD, WARN, _sensors
from d5ray.metrics.meters import ControlGroup
from d5ray.metrics.nvml import Nvml
from d5ray.metrics.rapl import Rapl


def test_a_sensor_that_cannot_be_read_is_named_with_the_reason() -> None:
    """As the meters themselves say; a missing sensor is a note, as runs do without it."""
    found = {finding.topic: finding for finding in _sensors()}
    meters = {"energy of processors": Rapl(), "use and energy of GPUs": Nvml()}
    for topic, meter in meters.items():
        assert found[topic].state == (GOOD if meter.counts_energy else WARN)
        assert meter.counts_energy or found[topic].text.startswith("unavailable")
    peak = [reading.value for reading in ControlGroup().read(0.0)]
    assert found["peak memory of the control group"].state == (WARN if None in peak else GOOD)
