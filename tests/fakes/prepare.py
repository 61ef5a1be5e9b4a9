"""Download what the tests otherwise download on first use, such as a Debian for a container."""

import os
from concurrent.futures import ThreadPoolExecutor

from fakes.container import missing_tools
from fakes.helm import helm
from fakes.serving_python import with_model_libraries
from fakes.wheels import user_environment

if __name__ == "__main__":
    steps = [with_model_libraries, helm]
    if os.geteuid() == 0 and not missing_tools():
        steps.append(user_environment)
    with ThreadPoolExecutor() as pool:
        for step in [pool.submit(step) for step in steps]:
            step.result()
