"""The environment of a child: all variables that affect its measurement, and no secret."""

from costprobe.adapters.host.processes import is_withheld

SECRETS = """
ALERTS_WEBHOOK APIKEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
AZURE_STORAGE_CONNECTION_STRING CI_JOB_TOKEN GITHUB_PAT GOOGLE_APPLICATION_CREDENTIALS HF_TOKEN
MYSQL_PWD NGC_CLI_API_KEY OPENAI_API_KEY PGPASSWORD SENTRY_DSN SLACK_WEBHOOK_URL SSH_AUTH_SOCK
SSL_KEY_PASSPHRASE db_passwd session_cookie
"""
OF_SYSTEMD = "CREDENTIALS_DIRECTORY NOTIFY_SOCKET LISTEN_FDS WATCHDOG_USEC"
NEEDED = """
CUDA_VISIBLE_DEVICES CUBLAS_WORKSPACE_CONFIG HF_HOME HOME KMP_AFFINITY LANG LD_LIBRARY_PATH
LD_PRELOAD MKL_NUM_THREADS NCCL_P2P_DISABLE NVIDIA_VISIBLE_DEVICES OLDPWD OMP_NUM_THREADS PATH PWD
PYTHONPATH PYTORCH_CUDA_ALLOC_CONF SSL_CERT_FILE TMPDIR TOKENIZERS_PARALLELISM
TORCHINDUCTOR_CACHE_DIR XDG_CACHE_HOME
"""
# In a variable of any name.
CREDENTIALS = [
    "http://me:word@proxy:3128",
    "redis://:word@cache",
    "https://ghp_0123456789@github.com/simple",
    "one two postgresql://me:word@db/x",
]
HARMLESS = ["http://proxy:3128", "https://host/a@b", "me@host", "a:b@c"]


def test_secrets_are_withheld_and_what_affects_a_measurement_is_passed():
    withheld = dict.fromkeys(f"{SECRETS} {OF_SYSTEMD}".split(), "/some/where:1")
    assert {name for name, value in withheld.items() if not is_withheld(name, value)} == set()
    assert {name for name in NEEDED.split() if is_withheld(name, "/some/where:1")} == set()
    assert [value for value in CREDENTIALS if not is_withheld("UPSTREAM", value)] == []
    assert [value for value in HARMLESS if is_withheld("UPSTREAM", value)] == []
