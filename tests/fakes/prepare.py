"""Download what the tests otherwise download on first use, such as a Debian for a container."""

from concurrent.futures import ThreadPoolExecutor

from fakes.container import can_boot
from fakes.helm import helm
from fakes.serving_python import with_model_libraries
from fakes.wheels import user_environment

if __name__ == "__main__":
    steps = [with_model_libraries, helm]
    if can_boot():
        steps.append(user_environment)
    with ThreadPoolExecutor() as pool:
        for step in [pool.submit(step) for step in steps]:
            step.result()
