"""The environment of a child: all variables that affect its measurement, and no secret."""

import os
import subprocess
import sys

import pytest
from costprobe.adapters.host.processes import child_environment, is_withheld
from hypothesis import given
from hypothesis import strategies as st

SECRETS = [
    "ALERTS_WEBHOOK",
    "APIKEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_CONNECTION_STRING",
    "CI_JOB_TOKEN",
    "GITHUB_PAT",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "HF_TOKEN",
    "MYSQL_PWD",
    "NGC_CLI_API_KEY",
    "OPENAI_API_KEY",
    "PGPASSWORD",
    "SENTRY_DSN",
    "SLACK_WEBHOOK_URL",
    "SSH_AUTH_SOCK",
    "SSL_KEY_PASSPHRASE",
    "db_passwd",
    "session_cookie",
]
NEEDED = [
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "HF_HOME",
    "HOME",
    "KMP_AFFINITY",
    "LANG",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MKL_NUM_THREADS",
    "NCCL_P2P_DISABLE",
    "NVIDIA_VISIBLE_DEVICES",
    "OLDPWD",
    "OMP_NUM_THREADS",
    "PATH",
    "PWD",
    "PYTHONPATH",
    "PYTORCH_CUDA_ALLOC_CONF",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TOKENIZERS_PARALLELISM",
    "TORCHINDUCTOR_CACHE_DIR",
    "XDG_CACHE_HOME",
]


@pytest.mark.parametrize("name", SECRETS)
def test_variable_named_like_a_secret_is_removed(name):
    assert is_withheld(name, "whatever it holds")


@pytest.mark.parametrize("name", NEEDED)
def test_variable_that_affects_the_measurement_is_passed(name):
    assert not is_withheld(name, "/some/where:1")


@pytest.mark.parametrize(
    "value",
    [
        "http://me:word@proxy:3128",
        "redis://:word@cache",
        "https://ghp_0123456789@github.com/simple",
        "one two postgresql://me:word@db/x",
    ],
)
def test_url_with_credentials_is_removed_under_any_name(value):
    assert is_withheld("UPSTREAM", value)


@pytest.mark.parametrize("value", ["http://proxy:3128", "https://host/a@b", "me@host", "a:b@c"])
def test_url_without_credentials_is_passed(value):
    assert not is_withheld("UPSTREAM", value)


@pytest.mark.parametrize(
    "name", ["CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC"]
)
def test_variables_of_systemd_are_removed(name):
    assert is_withheld(name, "1")


@given(st.dictionaries(st.text(), st.text()))
def test_environment_is_a_subset(environ):
    given_on = child_environment(environ)
    assert given_on.items() <= environ.items()
    withheld = environ.keys() - given_on.keys()
    assert all(is_withheld(name, environ[name]) for name in withheld)


def test_process_starts_with_the_reduced_environment():
    environ = child_environment({**os.environ, "MY_API_KEY": "canary"})
    command = [sys.executable, "-c", "import os, ssl; print(sorted(os.environ))"]
    shown = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert "PATH" in shown
    assert "MY_API_KEY" not in shown
