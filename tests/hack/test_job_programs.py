"""The controllers of other kinds of Jobs: where they come from, before any of them is built."""

import re

import pytest

from hack import tools
from hack.job_controllers import JOB_CONTROLLERS
from hack.job_programs import JOB_PROGRAMS, Change, JobProgram, changed_sources


@pytest.mark.parametrize("program", [*JOB_PROGRAMS.values(), *tools.PROGRAMS.values()])
def test_the_module_of_a_program_names_it_as_a_tool(program):
    text = (program.module / "go.mod").read_text()

    assert re.search(rf"^(tool )?\s*{re.escape(program.package)}$", text, re.MULTILINE)


@pytest.mark.parametrize("program", JOB_PROGRAMS.values())
def test_the_module_of_a_controller_says_which_of_its_sources_is_built(program):
    assert tools.required_version(program.source, at=program.module)


def test_every_program_that_runs_is_one_that_is_built():
    run = {controller.program or name for name, controller in JOB_CONTROLLERS.items()}

    assert run == set(JOB_PROGRAMS)


def a_program(before):
    change = Change(file="main.go", before=before, after="port = 0")
    return JobProgram(source="example.com/it", package="example.com/it", change=change)


def test_a_change_is_made_in_a_copy_that_the_go_mod_beside_it_names(tmp_path):
    sources = tmp_path / "module"
    sources.mkdir()
    (sources / "main.go").write_text("port = 8080\n")

    modfile = changed_sources(sources, a_program("port = 8080"), tmp_path / "changed")

    copied = tmp_path / "changed/sources"
    assert (copied / "main.go").read_text() == "port = 0\n"
    assert (sources / "main.go").read_text() == "port = 8080\n"
    assert modfile.read_text().endswith(f"\nreplace example.com/it => {copied}\n")


@pytest.mark.parametrize("text", ["nothing of it", "port = 8080\nport = 8080\n"])
def test_a_change_that_fits_no_single_place_ends_the_build(tmp_path, text):
    sources = tmp_path / "module"
    sources.mkdir()
    (sources / "main.go").write_text(text)

    with pytest.raises(SystemExit) as ended:
        changed_sources(sources, a_program("port = 8080"), tmp_path / "changed")

    assert str(ended.value) == "example.com/it: main.go has not one 'port = 8080'"
