"""Job files: their fields, and one sentence for each error in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from offcut.errors import InputError
from offcut.model import Job, ScalingCurve, Sizes
from offcut.wire.jobspec import JobSpec, parse_job, read_env_file, read_job_file, with_env_file

LEAST = {"name": "a", "command": ["train.py"]}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    return tmp_path


def write(place: Path, text: str) -> Path:
    path = place / "job.toml"
    path.write_text(text)
    return path


def test_a_whole_job_file(place):
    path = write(
        place,
        """
        name = "resnet"
        command = ["train.py", "--lr", "0.1"]
        sizes = "1,2,4"
        ranks_per_node = 4
        workdir = "code"
        env = {B = "2", A = "1"}
        setup = "module load cuda"
        weight = 2
        priority = 3
        goal_samples = 1000
        max_failures = 0
        grow_cost_s = 1.5
        shrink_cost_s = 0
        checkpoint_age_s = 5
        step_records = true
        [curve]
        nodes = [1, 4]
        rate = [10, 30.5]
        """,
    )
    assert read_job_file(path).to_job("resnet-1") == Job(
        id="resnet-1",
        name="resnet",
        command=("train.py", "--lr", "0.1"),
        sizes=Sizes((1, 2, 4)),
        ranks_per_node=4,
        workdir=str(place / "code"),
        env=(("A", "1"), ("B", "2")),
        setup="module load cuda",
        weight=2.0,
        priority=3,
        curve=ScalingCurve((1, 4), (10.0, 30.5)),
        goal_samples=1000,
        max_failures=0,
        grow_cost_s=1.5,
        shrink_cost_s=0.0,
        checkpoint_age_s=5.0,
        step_records=True,
    )


def test_a_job_file_of_mode_restart(place):
    path = write(
        place,
        """
        name = "ddp"
        command = ["train.py"]
        workdir = "code"
        mode = "restart"
        restart_grace_s = 60
        """,
    )
    job = read_job_file(path).to_job("ddp-1")
    assert (job.mode, job.restart_grace_s) == ("restart", 60.0)


def test_omitted_fields_have_the_defaults_of_the_job():
    """The file's defaults and the Job's are the same."""
    job = Job(id="x", name="a", command=("train.py",), sizes=Sizes.parse("1:8"))
    assert parse_job(LEAST, where="here").to_job("x") == job


def test_every_field_of_a_job_can_be_written_and_has_a_description():
    # Plans become the job's sizes, curve and environment, and the env file its environment.
    assert {*JobSpec.model_fields} - {"plans", "env_file"} | {"id"} == set(Job.__slots__)
    assert all(field.description for field in JobSpec.model_fields.values())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"colour": "red"}, "unknown key 'colour'."),
        ({"curve": {"nodes": [1], "rate": [1.0], "unit": "x"}}, "unknown key 'curve.unit'."),
        ({"name": None}, "name: Input should be a valid string (given: None)."),
        ({"name": "a b"}, "name: String should match pattern '^\\w[\\w.+-]*$' (given: 'a b')."),
        ({"name": "a\n"}, "name: String should match pattern '^\\w[\\w.+-]*$' (given: 'a\\n')."),
        ({"name": "../a"}, "name: String should match pattern '^\\w[\\w.+-]*$' (given: '../a')."),
        ({"command": []}, "command: List should have at least 1 item after validation, not 0 (given: [])."),
        ({"command": "train.py"}, "command: Input should be a valid list (given: 'train.py')."),
        ({"sizes": "8:1"}, "sizes '8:1': min 8 > max 1. Write the smaller one first."),
        ({"sizes": "0:4"}, "sizes: 0 is below 1. The smallest size is 1 node."),
        ({"sizes": "1,4,2"}, "sizes: 2 follows 4. List sizes once, in increasing order."),
        ({"sizes": "many"}, "sizes 'many' cannot be read. Write '4', '1:8', '2:8:2' or '1,2,4'."),
        ({"sizes": "2:8:0"}, "sizes '2:8:0': the stride is 0. A stride is at least 1."),
        ({"sizes": 4}, "sizes: Input should be a valid string (given: 4)."),
        (
            {"sizes": "1:8", "curve": {"nodes": [1, 4], "rate": [1, 3]}},
            "sizes: 8 nodes lie outside the curve, which ends at 4.",
        ),
        (
            {"sizes": "1", "curve": {"nodes": [1, 4], "rate": [1]}},
            "curve: 2 node counts but 1 rates. Give one rate per size.",
        ),
        ({"sizes": "1", "curve": {"nodes": [1], "rate": [0]}}, "curve: every rate is 0."),
        (
            {"sizes": "1", "curve": {"nodes": [1], "rate": [float("inf")]}},
            "curve.rate.0: Input should be a finite number (given: inf).",
        ),
        (
            {"sizes": "1", "curve": {"nodes": [1], "rate": [1e-10]}},
            "curve.rate: a rate must be 0, or from 1e-06 to 1e+12: 1e-10 is not.",
        ),
        ({"weight": 0}, "weight: Input should be greater than or equal to 0.000001 (given: 0)."),
        ({"weight": 1e308}, "weight: Input should be less than or equal to 1000000 (given: 1e+308)."),
        ({"weight": float("inf")}, "weight: Input should be a finite number (given: inf)."),
        ({"weight": float("nan")}, "weight: Input should be a finite number (given: nan)."),
        ({"grow_cost_s": -1}, "grow_cost_s: Input should be greater than or equal to 0 (given: -1)."),
        ({"mode": "magic"}, "mode: Input should be 'session' or 'restart' (given: 'magic')."),
        (
            {"mode": "restart", "command": ["/usr/bin/torchrun", "train.py"]},
            "command: offcut starts the ranks itself: give the script alone, without /usr/bin/torchrun.",
        ),
        (
            {"mode": "restart", "goal_samples": 5},
            "goal_samples: only a script with a session can do that, not one of mode 'restart'.",
        ),
        (
            {"mode": "restart", "step_records": True},
            "step_records: only a script with a session can do that, not one of mode 'restart'.",
        ),
        ({"restart_grace_s": -1}, "restart_grace_s: Input should be greater than or equal to 0 (given: -1)."),
        ({"ranks_per_node": 1.5}, None),
        ({"max_failures": -1}, None),
        ({"goal_samples": 0}, None),
        ({"env": {"A": 1}}, "env.A: Input should be a valid string (given: 1)."),
    ],
)
def test_one_sentence_names_the_place_and_the_field(change, sentence):
    with pytest.raises(InputError) as caught:
        parse_job(LEAST | change, where="job.toml")
    if sentence is None:
        assert caught.value.what.startswith(f"job.toml: {next(iter(change))}: Input should be")
    else:
        assert caught.value.what == f"job.toml: {sentence}"
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_a_missing_key_is_named():
    with pytest.raises(InputError, match=r"^here: command: Field required\."):
        parse_job({"name": "a"}, where="here")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('name = "a"\ncommand = ["gone.py"]', "command: there is no script {place}/gone.py."),
        ('name = "a"\ncommand = ["x"]\nworkdir = "gone"', "workdir: {place}/gone is not a directory."),
        ('name = "a"\ncommand = ["x"]\nworkdir = "job.toml"', "workdir: {place}/job.toml is not a directory."),
    ],
)
def test_files_that_the_job_file_names_must_exist(place, text, sentence):
    path = write(place, text)
    with pytest.raises(InputError) as caught:
        read_job_file(path)
    assert caught.value.what == f"{path}: {sentence.format(place=place)}"


def test_a_program_other_than_a_script_is_not_looked_for(place):
    """It may exist on the nodes alone."""
    assert read_job_file(write(place, 'name = "a"\ncommand = ["srun-me"]')).command == ["srun-me"]


def test_an_absolute_script_is_taken_as_it_is(place):
    script = place / "code" / "train.py"
    assert read_job_file(write(place, f'name = "a"\ncommand = ["{script}"]')).workdir == str(place)


def test_files_that_cannot_be_read(place):
    with pytest.raises(InputError, match=r"gone.toml: cannot be read: No such file or directory\. Check the path\."):
        read_job_file(place / "gone.toml")
    with pytest.raises(InputError, match=r"is not TOML: .*line 1"):
        read_job_file(write(place, "name = @"))
    path = place / "job.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(InputError, match="is not TOML"):
        read_job_file(path)


def test_an_env_file_lies_beside_the_job_file_and_env_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "secrets.env").write_text("# keys\n\nKEY= a=b \nSEED=1\n")
    (tmp_path / "job.toml").write_text(
        'name = "a"\ncommand = ["train.py"]\nenv_file = "secrets.env"\nenv = { SEED = "2" }\n'
    )
    spec = with_env_file(read_job_file(tmp_path / "job.toml"))
    assert spec.env == {"KEY": " a=b ", "SEED": "2"}
    assert dict(spec.to_job("a-1").env) == spec.env


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"A=1\nnot-shown-here\n", "line 2 is not NAME=VALUE"), (b"\xff", "is not UTF-8"), (None, "cannot be read")],
)
def test_an_env_file_that_cannot_be_used(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "secrets.env"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=says) as refusal:
        read_env_file(path)
    assert "not-shown-here" not in str(refusal.value)
