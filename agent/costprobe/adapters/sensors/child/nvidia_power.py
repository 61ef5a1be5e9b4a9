"""The power and energy of an NVIDIA board: the ways to read them, all in one scope.

On a module, a board with a CPU of its own such as GH200, NVML has power of the GPU alone and of the
module. Its energy counter (nvmlDeviceGetTotalEnergyConsumption) covers the module on GH200
(ml-energy/zeus, pull request 172). Field values name their scope (nvml.h, NVML_POWER_SCOPE_*).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from costprobe.adapters.sensors.child.nvml import (
    VALUE_TYPE_UNSIGNED_INT,
    Call,
    Values,
    Way,
    fault_of,
    known,
    number,
)
from costprobe.core.records import EnergyScope

# nvml.h: NVML_POWER_SCOPE_GPU and NVML_POWER_SCOPE_MODULE.
SCOPE_GPU: Final = 0
SCOPE_MODULE: Final = 1
# nvml.h: NVML_FI_DEV_POWER_AVERAGE (over 1 s) and NVML_FI_DEV_POWER_INSTANT in mW, and
# NVML_FI_DEV_ENERGY in mJ.
FIELD_POWER_AVERAGE: Final = 185
FIELD_POWER_INSTANT: Final = 186
FIELD_ENERGY: Final = 191
# nvml.h: NVML_TOTAL_POWER_SAMPLES and NVML_MODULE_POWER_SAMPLES, in mW.
SAMPLES_OF_SCOPE: Final = {SCOPE_GPU: 0, SCOPE_MODULE: 7}
NOT_SUPPORTED: Final = 3
# A module draws more than its GPU; a driver that ignores the scope reports the same for both.
MODULE_LEAST_W: Final = 5.0
# Counters of two scopes differ by more than one counter can advance between two readings.
SAME_COUNTER_J: Final = 300.0


class FieldReader:
    """Reads field values, each of a scope, into memory of its own.

    Args:
        fields: Pairs of a field's id and its scope.
    """

    def __init__(self, fields: Sequence[tuple[int, int]]) -> None:
        self._memory = (pynvml.c_nvmlFieldValue_t * len(fields))()
        self._fields = tuple(self._memory)
        for field, (field_id, scope) in zip(self._fields, fields, strict=True):
            field.fieldId, field.scopeId = field_id, scope
        self._values = tuple(field.value for field in self._fields)
        self.worst_code = 0

    def read(self, call: Call, handle: object) -> list[float | None]:
        """Return each value in W or J; None where the driver has none.

        Raises:
            SensorFault: The call failed.
        """
        call("nvmlDeviceGetFieldValues", handle, self._memory)
        values: list[float | None] = []
        self.worst_code = 0
        for field, value in zip(self._fields, self._values, strict=True):
            code = number(field, "nvmlReturn")
            self.worst_code = code or self.worst_code
            values.append(value_of(number(field, "valueType"), code, value.ullVal))
        return values


def value_of(value_type: int, code: int, value: int) -> float | None:
    """The W or J that an nvmlFieldValue_t in mW or mJ holds; None for an error or no value."""
    if code:
        return None
    bits = 32 if value_type == VALUE_TYPE_UNSIGNED_INT else 64
    # The power of a working board is never 0 W: zero means that the field is not supported.
    milli = known(value & (1 << bits) - 1, bits)
    return None if not milli else milli / 1000


class PowerFields:
    """Power by NVML's field values; each device has its own memory for them.

    Args:
        scope: NVML_POWER_SCOPE_* of the fields.
    """

    def __init__(self, scope: int) -> None:
        self._reader = FieldReader([(FIELD_POWER_AVERAGE, scope), (FIELD_POWER_INSTANT, scope)])

    def __call__(self, call: Call, handle: object) -> Values:
        """Return the power in W.

        Raises:
            SensorFault: The call failed, or the driver has neither field.
        """
        average_w, instant_w = self._reader.read(call, handle)
        if average_w is None and instant_w is None:
            raise fault_of("nvmlDeviceGetFieldValues", self._reader.worst_code or NOT_SUPPORTED)
        return {
            "power_w": instant_w if average_w is None else average_w,
            "power_instant_w": average_w if instant_w is None else instant_w,
            "is_averaged": average_w is not None,
        }


def _power_usage(call: Call, handle: object) -> Values:
    milliwatts = known(call("nvmlDeviceGetPowerUsage", handle))
    watts = None if not milliwatts else milliwatts / 1000
    return {"power_w": watts, "power_instant_w": watts}


def _read_total_j(call: Call, handle: object) -> float | None:
    total_mj = known(call("nvmlDeviceGetTotalEnergyConsumption", handle), bits=64)
    return None if total_mj is None else total_mj / 1000


@dataclass(frozen=True, slots=True)
class PowerScope:
    """What of a board power and energy are read of.

    Attributes:
        covers: "module" where that includes the module's CPU and memory.
        power_scope: NVML_POWER_SCOPE_* of the power.
        energy_scope: The same of the energy's field; None: the counter that has no scope.
    """

    covers: EnergyScope
    power_scope: int
    energy_scope: int | None = None

    def power_ways(self) -> list[Way]:
        """The ways to read power, best first."""
        fields = PowerFields(self.power_scope)
        return [fields, _power_usage] if self.power_scope == SCOPE_GPU else [fields]

    def counter(self) -> Callable[[Call, object], float | None]:
        """A function that reads the energy counter in J."""
        if self.energy_scope is None:
            return _read_total_j
        reader = FieldReader([(FIELD_ENERGY, self.energy_scope)])

        def read_field_j(call: Call, handle: object) -> float | None:
            (energy_j,) = reader.read(call, handle)
            if reader.worst_code:
                raise fault_of("nvmlDeviceGetFieldValues", reader.worst_code)
            return energy_j

        return read_field_j


# A board that is no module has one scope, and counters without one.
WHOLE_GPU: Final = PowerScope("device", SCOPE_GPU)


def scopes_of(call: Call, handle: object) -> list[PowerScope]:
    """The scopes in which power and energy can be read, the most probable first.

    That of the GPU where NVML counts the GPU's energy apart from the module's; otherwise that of
    the module, whose counter is the one without a scope on GH200. If the self-test finds that
    power and counter disagree, the next one applies.

    Raises:
        SensorFault: The call failed.
    """
    fields = (FIELD_POWER_INSTANT, FIELD_POWER_AVERAGE, FIELD_ENERGY)
    scopes = (SCOPE_GPU, SCOPE_MODULE)
    powers = FieldReader([(field, scope) for field in fields for scope in scopes]).read(
        call, handle
    )
    gpu_w, module_w = powers[0] or powers[2], powers[1] or powers[3]
    gpu_j, module_j = powers[4:]
    if module_w is None or module_w - (gpu_w or 0.0) < MODULE_LEAST_W:
        return [WHOLE_GPU]
    module = PowerScope("module", SCOPE_MODULE, None if module_j is None else SCOPE_MODULE)
    if gpu_w is None:
        return [module]
    if gpu_j is None:
        return [module, WHOLE_GPU]
    gpu = PowerScope("device", SCOPE_GPU, SCOPE_GPU)
    has_own = module_j is None or abs(module_j - gpu_j) > SAME_COUNTER_J
    return [gpu, module] if has_own else [module, gpu]


def sample_powers(value_type: int, samples: Iterable[Any], seen_us: int) -> list[tuple[int, float]]:
    """The driver's new buffered samples as (UTC us, W), oldest first.

    Args:
        value_type: Which member of the union holds the value.
        samples: The result of nvmlDeviceGetSamples.
        seen_us: UTC us of the last one read before; 0 for none.
    """
    powers = []
    for sample in samples:
        value = sample.sampleValue
        unsigned_int = value_type == VALUE_TYPE_UNSIGNED_INT
        milliwatts = known(value.uiVal) if unsigned_int else known(value.ullVal, bits=64)
        # An unused slot holds zeros.
        if int(sample.timeStamp) > seen_us and milliwatts:
            powers.append((int(sample.timeStamp), milliwatts / 1000))
    return sorted(powers)
