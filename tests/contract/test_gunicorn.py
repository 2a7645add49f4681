"""What the worker and the arbiter lean on inside gunicorn is as it was when they were written."""

import hashlib
import inspect
import signal
import tomllib
from pathlib import Path

import gunicorn
import pytest
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker
from gunicorn.workers.workertmp import WorkerTmp

from webhook.server.gunicorn_app import OneWorkerArbiter, Server
from webhook.server.worker import PollingWorker, ServerLog

# What is called or overridden, and the first digits of its source's SHA-256.
LEANED_ON = {
    Worker.__init__: "e0f1de2d6057",
    Worker.init_process: "114caccd7a0e",
    Worker.init_signals: "65442e0602b0",
    Worker.load_wsgi: "18b02fc35e96",
    Worker.notify: "7f509bc4046b",
    Worker.handle_exit: "e2f7159c426d",
    Worker.handle_quit: "2944b4132761",
    Worker.handle_abort: "ca347b2ae368",
    WorkerTmp.notify: "0d06fcb9fe25",
    Arbiter.__init__: "53b20d752bbb",
    Arbiter.run: "1ddfab9d644f",
    Arbiter.signal: "8b193e95e16a",
    Arbiter.wait_for_signals: "4abcab1deb7c",
    Arbiter.handle_term: "93d583480a66",
    Arbiter.handle_hup: "50de80005cd6",
    Arbiter.halt: "f080672e7413",
    Arbiter.stop: "7138b6afd9c4",
    Arbiter.spawn_worker: "6abc0d90b0b9",
    Arbiter.reap_workers: "ebcf4187e9eb",
    Arbiter.murder_workers: "3f8fbfdf473f",
    BaseApplication.__init__: "7b95f575e050",
    BaseApplication.do_load_config: "502f5dc865f1",
    BaseApplication.wsgi: "4663ccc8ece6",
    BaseApplication.run: "4fcc52f6dfc0",
    Logger.setup: "17c79acdddea",
}
PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
SETTINGS = (
    "bind",
    "keepalive",
    "graceful_timeout",
    "workers",
    "worker_class",
    "worker_connections",
    "worker_tmp_dir",
    "backlog",
    "max_requests",
    "timeout",
    "accesslog",
    "errorlog",
    "logger_class",
    "control_socket_disable",
    "proc_name",
)


def digest(function):
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]


@pytest.mark.parametrize("function", LEANED_ON, ids=lambda function: function.__qualname__)
def test_gunicorn_does_what_the_worker_was_written_for(function):
    name = function.__qualname__

    assert digest(function) == LEANED_ON[function], (
        f"gunicorn {gunicorn.__version__} has another {name}. Compare it with the former one, see"
        " whether webhook/server/worker.py and webhook/server/gunicorn_app.py still hold with it"
        " (docs/decisions/0007-worker.md), and write its new digest into this table."
    )


def test_who_installs_the_wheel_gets_the_very_gunicorn_that_was_tested():
    dependencies = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]

    (wanted,) = [each for each in dependencies if each.startswith("gunicorn")]

    assert wanted == f"gunicorn=={gunicorn.__version__}"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(PollingWorker, Worker), (OneWorkerArbiter, Arbiter), (Server, BaseApplication)],
    ids=lambda kind: kind.__name__,
)
def test_what_we_override_is_there_to_be_overridden(ours, theirs):
    base = {name for kind in theirs.__mro__ for name in vars(kind)} | instance_names(theirs)
    public = {name for name in vars(ours) if not name.startswith("_")}

    assert public <= base, (
        f"gunicorn {gunicorn.__version__}: nothing calls {sorted(public - base)} any more"
    )


def instance_names(kind):
    """The attributes that a class's own ``__init__`` sets."""
    words = inspect.getsource(kind.__init__).replace("=", " ").split()
    return {word.removeprefix("self.") for word in words if word.startswith("self.")}


@pytest.mark.parametrize("attribute", ["app", "cfg", "log", "ppid", "sockets"])
def test_a_worker_has_what_ours_reads(attribute):
    assert attribute in instance_names(Worker)


def test_no_name_of_ours_hides_one_of_gunicorns():
    ours = instance_names(PollingWorker) | set(vars(PollingWorker))
    private = {name for name in ours if name.startswith("_") and not name.startswith("__")}

    assert not private & (instance_names(Worker) | set(vars(Worker)))


@pytest.mark.parametrize("name", SETTINGS)
def test_gunicorn_knows_each_setting(name):
    assert name in Config().settings, f"gunicorn {gunicorn.__version__} ignores {name}"


def test_a_worker_hears_the_signals_that_the_arbiter_sends():
    source = inspect.getsource(Worker.init_signals)

    assert "signal.signal(signal.SIGTERM, self.handle_exit)" in source
    assert "signal.signal(signal.SIGQUIT, self.handle_quit)" in source
    assert "signal.set_wakeup_fd(self.PIPE[1])" in source


def test_only_a_second_sigterm_hurries():
    asked = []
    arbiter = OneWorkerArbiter.__new__(OneWorkerArbiter)
    arbiter.SIG_QUEUE = type("Queue", (), {"put_nowait": staticmethod(asked.append)})

    for sig in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
        arbiter.signal(sig, None)

    assert asked == [signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


def test_the_log_is_gunicorns():
    assert issubclass(ServerLog, Logger)
