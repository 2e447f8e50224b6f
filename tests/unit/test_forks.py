"""`--forks`: the outcome of each test is reported, also of one that ends its process, and nothing is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    "conftest.py": """
        import os, pathlib, pytest
        @pytest.fixture(scope="session")
        def once(tmp_path_factory):
            place = tmp_path_factory.getbasetemp().parent / f"made-{os.getpid()}"
            place.touch(exist_ok=False)
            yield os.getpid()
            place.rename(place.with_name(f"ended-{os.getpid()}"))
        """,
    "a/test_a.py": """
        import os
        def test_before(once): assert once == os.getpid()
        def test_end(): os._exit(3)
        def test_behind(once): assert once == os.getpid()
        """,
    "a/test_b.py": """
        import pytest
        def test_wrong(once):
            print("words of a test")
            assert 1 == 2
        def test_skipped(): pytest.skip("for a reason")
        """,
    **{
        f"c/test_c{number}.py": "def test_fine(once, capfd):\n    print(1)\n    assert capfd.readouterr().out"
        for number in range(30)
    },
}


pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform != "linux", reason="forks")]


def written(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Writes the files of tests. Returns the command that runs them."""
    for name, text in files.items():
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(line[indent:] for line in lines) + "\n")
    (folder / "made").mkdir()
    command = [sys.executable, "-m", "pytest", "-p", "tests.forks", "--forks=3", "-ra", "-c", "/dev/null"]
    return [*command, "--rootdir", str(folder), "--basetemp", str(folder / "made" / "base"), str(folder)]


def outcome(command: list[str]) -> tuple[int, str]:
    env = {**os.environ, "COLUMNS": "400"}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    return run.returncode, run.stdout + run.stderr


def test_every_outcome_is_reported_and_a_session_s_fixture_is_made_once_in_a_process(tmp_path: Path) -> None:
    code, text = outcome(written(tmp_path, FILES))
    assert code == 1, text
    assert "2 failed, 32 passed, 1 skipped" in text
    assert "test_a.py::test_end - its process has ended: 3" in text
    assert "test_b.py::test_wrong - assert 1 == 2" in text and "words of a test" in text
    assert "for a reason" in text
    made = [place.name for place in (tmp_path / "made" / "base").iterdir() if "-" in place.name]
    assert len([name for name in made if name.startswith("ended-")]) in (2, 3), made
    assert len([name for name in made if name.startswith("made-")]) == 1, "that of the process that a test ended"


ENDS = {
    "a/test_group.py": """
        import os, signal
        def test_group(): os.killpg(os.getpgrp(), signal.SIGKILL)
        def test_behind(): pass
        """,
    "a/test_hangs.py": """
        import time
        def test_hangs(): time.sleep(1000)
        def test_behind(): pass
        """,
    "a/test_child.py": """
        import os, time
        def test_child():
            if os.fork() == 0:
                time.sleep(1000)  # and holds what its parent has open
            os._exit(0)
        def test_behind(): pass
        """,
    "a/test_interrupt.py": """
        def test_interrupt(): raise KeyboardInterrupt("a word")
        def test_behind(): pass
        """,
}


def test_what_ends_a_process_fails_its_test_only_and_leaves_no_process_behind(tmp_path: Path) -> None:
    code, text = outcome([*written(tmp_path, ENDS), "--forks-limit=4", "-p", "no:cacheprovider"])
    assert code == 1, text
    assert "4 failed, 4 passed" in text
    assert "test_group.py::test_group - its process has ended: -9" in text
    assert "test_hangs.py::test_hangs - its process has ended: -6" in text and "--forks-limit" in text
    assert "test_child.py::test_child - its process has ended: 0" in text
    assert "test_interrupt.py::test_interrupt - its process has ended: 1" in text and "a word" in text
    assert left(tmp_path) == []


def test_a_fixture_of_the_session_that_cannot_be_torn_down_fails_the_run(tmp_path: Path) -> None:
    files = {
        "conftest.py": """
            import pytest
            @pytest.fixture(scope="session")
            def broken():
                yield
                raise OSError("a place is away")
            """,
        "a/test_a.py": "def test_a(broken): pass",
        "a/test_b.py": "def test_b(): pass",
    }
    code, text = outcome(written(tmp_path, files))
    assert code == 1, text
    assert "2 passed, 1 error" in text and "a place is away" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_tears_down_and_ends_its_processes(tmp_path: Path, number: int) -> None:
    text = """
        import pathlib, subprocess, time, pytest
        @pytest.fixture
        def place():
            yield pathlib.Path(__file__)
            pathlib.Path(__file__).with_suffix(".ended").touch()
        def test_waits(place):
            with subprocess.Popen(["sleep", "1000"], cwd=place.parent):
                place.with_suffix(".begun").touch()
                time.sleep(1000)
        """
    command = written(tmp_path, {"a/test_a.py": text, "a/test_b.py": text})
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        until = time.monotonic() + 60
        while len(list(tmp_path.glob("a/*.begun"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        run.send_signal(number)
        text, _ = run.communicate(timeout=60)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, text
    assert len(list(tmp_path.glob("a/*.ended"))) == 2
    assert left(tmp_path) == []


def left(folder: Path) -> list[str]:
    """Commands of the processes that run, and that name the folder or are in it."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            if str(folder) in command or (process / "cwd").readlink().is_relative_to(folder):
                found.append(command)
    return found
