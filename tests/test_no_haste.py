"""No test supposes a fast machine: waits have one time-out, and nothing is measured by the clock.

A wait for a state is ``hack.waiting.wait_for``, or has its ``WAIT_SECONDS``. What only a clock
tells is a benchmark, and what comes first is asserted from what was recorded.
"""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent

CLOCKS = ("monotonic", "perf_counter", "time", "process_time")
TIMEOUTS = ("timeout", "timeout_seconds")
WAITS = ("wait", "join", "get", "acquire", "communicate", "result")
"""Methods whose first argument may be how long to wait."""
EXCEPTIONS = {
    ("api/test_prometheus.py", "time.sleep(0.02)"): "a server that sends byte by byte",
    ("contract/worker_server.py", "time.sleep(float(body[6:]))"): "an application that takes long",
    ("e2e/comparing.py", "int(time.time()) > now"): "a Job is to be of another second",
    (
        "e2e/test_chaos.py",
        "time.sleep(self.seed.uniform(0, 2 * PAUSE_SECONDS))",
    ): "it takes time",
    **dict.fromkeys(
        (
            ("e2e/played_controllers.py", f"now - runs[-1].began > {seconds}")
            for seconds in ("START_SECONDS", "START_SECONDS + RUN_SECONDS")
        ),
        "pods take time to start, and run",
    ),
    **dict.fromkeys(
        (
            ("e2e/timed_player.py", "time.monotonic() < deadline"),
            ("e2e/timed_player.py", "time.sleep(TICK_SECONDS)"),
        ),
        "worlds are played in real time",
    ),
    (
        "unasked.py",
        "time.time() > changed + MARGIN_SECONDS + late",
    ): "a policy counts here only when it has been there for a while",
}
"""By module and code, with the reason."""


def faults(module):
    """Return what sleeps, waits for a time of its own, or compares what clocks say."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and (_name(node.func) == "sleep" or _waits_otherwise(node)):
            found.append(node)
        if isinstance(node, ast.FunctionDef):
            found += _measured(node)
            found += [each for each in _defaults(node.args) if _is_number(each)]
        if isinstance(node, ast.Assign) and "WAIT_SECONDS" in map(_name, node.targets):
            found.append(node)
    return [ast.unparse(node) for node in found]


def _name(node):
    """Return the last part of a dotted name, of modules and not of objects of tests."""
    if isinstance(node, ast.Attribute):
        return node.attr if _name(node.value) in ("time", "asyncio") else ""
    return node.id if isinstance(node, ast.Name) else ""


def _defaults(arguments):
    """Yield the defaults of arguments that say how long to wait."""
    named = arguments.args[len(arguments.args) - len(arguments.defaults) :], arguments.kwonlyargs
    for names, values in zip(named, (arguments.defaults, arguments.kw_defaults), strict=True):
        yield from (
            value for name, value in zip(names, values, strict=True) if name.arg in TIMEOUTS
        )


def _is_number(node):
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _waits_otherwise(call):
    given = [each.value for each in call.keywords if each.arg in TIMEOUTS]
    if isinstance(call.func, ast.Attribute) and call.func.attr in WAITS:
        given += call.args[:1]
    return any(map(_is_number, given))


def _measured(function):
    if not any(map(_is_clock, ast.walk(function))):
        return
    moments = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _is_clock(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def has_moment(node):
        return any(_is_clock(each) or _name(each) in moments for each in ast.walk(node))

    for node in ast.walk(function):
        match node:
            case ast.Compare() if has_moment(node):
                yield node
            case ast.BinOp(op=ast.Sub()) if has_moment(node.left) and has_moment(node.right):
                yield node


def _is_clock(node):
    return isinstance(node, ast.Call) and _name(node.func) in CLOCKS


def test_no_test_sleeps_waits_for_a_time_of_its_own_or_measures_one():
    found = {
        (str(path.relative_to(HERE)), fault)
        for path in HERE.rglob("*.py")
        for fault in faults(ast.parse(path.read_text()))
    }

    assert found == set(EXCEPTIONS)


@pytest.mark.parametrize(
    ("code", "is_fault"),
    [
        ("time.sleep(1)", True),
        ("process.wait(30)", True),
        ("process.wait(WAIT_SECONDS)", False),
        ("urlopen(url, timeout=5)", True),
        ("WAIT_SECONDS = 30", True),
        ("start = time.monotonic()\n work()\n assert time.monotonic() - start < 5", True),
        ("begun = time.time()\n ended = time.time()\n assert ended <= begun + 5", True),
        ("put(at=time.monotonic() + 5)", False),
        ("clock.sleep(5)", False),
        ("def run(program, timeout=60): pass", True),
    ],
)
def test_each_kind_is_found(code, is_fault):
    assert bool(faults(ast.parse(f"def test():\n {code}"))) is is_fault
