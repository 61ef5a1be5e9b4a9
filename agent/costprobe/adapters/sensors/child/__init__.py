"""The sensor child: owns NVML and RAPL, samples devices, answers energy requests."""
