"""The sensor child: loads NVML, AMD SMI and RAPL, samples devices, answers requests for energy."""
