"""Samples of the section [[service]]."""

from costprobe.serving.settings import ServiceConfig


def service(name="chat", *devices, **keys):
    """Return a service of vLLM on some devices, gpu0 by default."""
    plain = {"name": name, "engine": "vllm", "devices": list(devices) or ["gpu0"]}
    return ServiceConfig.model_validate({"url": f"http://127.0.0.1:1/{name}", **plain, **keys})


def service_table(name, url, *devices, **more):
    """Return such a section as text."""
    keys = {"name": name, "url": url, "engine": "vllm", **more}
    lines = [f'{key} = "{value}"' for key, value in keys.items()]
    held = ", ".join(f'"{device}"' for device in devices)
    return "\n".join(["[[service]]", *lines, f"devices = [{held}]\n"])
