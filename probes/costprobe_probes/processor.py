"""The name of the host's processor, the same for the sensor of the CPUs and for probes.

On arm64 the kernel has no product name: a core is identified by its implementer and part (Arm
Architecture Reference Manual, MIDR_EL1). Names are those of util-linux's lscpu.
"""

from __future__ import annotations

import re

CORES = {
    (0x41, 0xD03): "Arm Cortex-A53",
    (0x41, 0xD05): "Arm Cortex-A55",
    (0x41, 0xD07): "Arm Cortex-A57",
    (0x41, 0xD08): "Arm Cortex-A72",
    (0x41, 0xD0B): "Arm Cortex-A76",
    (0x41, 0xD0C): "Arm Neoverse-N1",
    (0x41, 0xD40): "Arm Neoverse-V1",
    (0x41, 0xD41): "Arm Cortex-A78",
    (0x41, 0xD42): "Arm Cortex-A78AE",
    (0x41, 0xD49): "Arm Neoverse-N2",
    (0x41, 0xD4F): "Arm Neoverse-V2",
    (0x41, 0xD83): "Arm Neoverse-V3AE",
    (0x41, 0xD84): "Arm Neoverse-V3",
    (0x41, 0xD8E): "Arm Neoverse-N3",
    (0x43, 0x0AF): "Cavium ThunderX2",
    (0x46, 0x001): "Fujitsu A64FX",
    (0x48, 0xD01): "HiSilicon TaiShan-v110",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1a",
}


def processor_name(cpuinfo: str) -> str:
    """Return the processor's name from the text of /proc/cpuinfo; "CPU" where that has none.

    Cores of several types are all named. Those that are not in the table have their codes as a name,
    so that two types never share one.
    """
    match = re.search(r"^(?:model name|Model|cpu model|cpu)\s*:\s*(\S.*)$", cpuinfo, re.MULTILINE)
    if match:
        return " ".join(match[1].split())
    cores = re.findall(
        r"^CPU implementer\s*:\s*(0x[0-9a-f]+)$.*?^CPU part\s*:\s*(0x[0-9a-f]+)$",
        cpuinfo,
        re.MULTILINE | re.DOTALL,
    )
    names = [
        CORES.get((int(implementer, 16), int(part, 16)), f"Arm {implementer}/{part}")
        for implementer, part in dict.fromkeys(cores)
    ]
    return " + ".join(names) or "CPU"
