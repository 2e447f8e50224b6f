"""`--forks`: the outcome of each test is reported, also of one that ends its process."""

import os
import subprocess
import sys
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
        def test_behind(): pass
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


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_every_outcome_is_reported_and_a_session_s_fixture_is_made_once_in_a_process(tmp_path: Path) -> None:
    for name, text in FILES.items():
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n".join(line[indent:] for line in lines) + "\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.forks", "--forks=3", "-ra", "-c", "/dev/null"]
    command += ["--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "made" / "base"), str(tmp_path)]
    (tmp_path / "made").mkdir()
    run = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert "2 failed, 31 passed, 1 skipped" in run.stdout
    assert "test_a.py::test_end - its process has ended: 3" in run.stdout
    assert "test_b.py::test_wrong - assert 1 == 2" in run.stdout and "words of a test" in run.stdout
    assert "for a reason" in run.stdout
    made = [place.name for place in (tmp_path / "made" / "base").iterdir() if "-" in place.name]
    assert len([name for name in made if name.startswith("ended-")]) in (2, 3), made
    assert len([name for name in made if name.startswith("made-")]) == 1, "that of the process that a test ended"
