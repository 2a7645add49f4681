"""What a Job runs is named to people by image and program: an argument may be a password."""

from tests.learn.finished import ADMITTED, finished, ran
from webhook.controller import records
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import config_map
from webhook.state.workload import read_workload

SECRET = "hunter2-S3cret"


def learned(**main):
    source = ran(ADMITTED, finished("Failed"))
    container = source["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container |= {"image": "registry.example.com/mysql:8", **main}
    return read_workload(source).run


def test_no_argument_stands_in_records_or_in_events():
    run = learned(command=["/usr/bin/mysql", f"-p{SECRET}"], args=["-uroot", SECRET])
    times = RunTimeLearner()
    times.add(run)
    record = times.records[run.mark.job_class.key]

    text = records.message((run.mark.job_class.key, "policy", "cpu"), record, 1_800_000_000.0)

    assert run.name == record.name == "mysql:8 mysql"
    assert SECRET not in str(config_map(0, times.records))
    assert f"({run.name})" in text
    assert SECRET not in text


def test_arguments_without_a_command_leave_the_image():
    assert learned(args=[SECRET]).name == "mysql:8"
