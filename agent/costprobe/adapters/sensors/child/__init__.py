"""The sensor child: loads NVML and RAPL, samples devices, answers requests for energy."""
