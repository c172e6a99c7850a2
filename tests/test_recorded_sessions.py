"""Traces for the simulator: read, and made from journals and from logs of other people's making."""

import json
from pathlib import Path
from typing import Any

import pytest

from thunder_router.cli import main
from thunder_router.emulator.traces import Session, Trace, load, write
from thunder_router.emulator.traces.calls import Call, sessions_of
from thunder_router.errors import ConfigError

TRACES = Path(__file__).parent / "traces"
SYSTEM = {"role": "system", "content": "You fix bugs." * 20}
TASK = {"role": "user", "content": "Fix the parser." * 10}
ANSWER = {"role": "assistant", "content": "Let me look."}
RESULT = {"role": "user", "content": "exit code 0"}


def log(folder: Path, *lines: Any) -> list[Session]:
    """What a request log of these lines becomes."""
    file = folder / "requests.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    trace = load(file)
    assert trace.form == "request log"
    return trace.sessions


def usage(prompt: int, output: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": output}


def test_litellms_payloads_are_turns_of_their_trace(tmp_path: Path) -> None:
    def line(start: float, messages: list[Any], prompt: int, output: int) -> dict[str, Any]:
        return {
            "id": "chatcmpl-1",
            "trace_id": "run-7",
            "call_type": "acompletion",
            "status": "success",
            "startTime": start,
            "endTime": start + 4,
            "model": "glm-4.6",
            "messages": messages,
            "response": {"choices": [{"message": ANSWER}], "usage": usage(prompt, output)},
        }

    failed = line(1_700_000_009.0, [SYSTEM], 5, 5) | {"status": "failure", "error_str": "boom"}
    sessions = log(
        tmp_path,
        line(1_700_000_010.5, [SYSTEM, TASK, ANSWER, RESULT], 1_200, 30),
        failed,
        line(1_700_000_000.0, [SYSTEM, TASK], 1_000, 100),
    )
    assert sessions == [[(1_000, 100, 0, 6.5), (1_200, 30, 1_100, 0.0)]]


def test_openais_batch_lines_are_named_as_the_router_names_programs(tmp_path: Path) -> None:
    def line(asked: int, program: str, status: int = 200) -> dict[str, Any]:
        body = {"usage": usage(500, 20), "created": asked}
        return {
            "custom_id": f"request-{asked}",
            "body": {"messages": [TASK], "metadata": {"session_id": program}},
            "response": {"status_code": status, "request_id": "r", "body": body},
            "error": None,
        }

    sessions = log(tmp_path, line(100, "a"), line(101, "b"), line(102, "a"), line(103, "a", 500))
    assert sessions == [[(500, 20, 0, 2.0), (500, 20, 500, 0.0)], [(500, 20, 0, 0.0)]]


def test_langfuses_observations_hold_texts_as_strings_and_cached_tokens_apart(
    tmp_path: Path,
) -> None:
    def line(start: str, end: str, messages: list[Any], details: dict[str, int]) -> dict[str, Any]:
        return {
            "type": "GENERATION",
            "trace_id": "one",
            "session_id": "s",
            "start_time": start,
            "end_time": end,
            "input": json.dumps(messages),
            "output": json.dumps(ANSWER),
            "usage_details": details,
            "level": "DEFAULT",
        }

    day = "2026-05-29 13:46"
    sessions = log(
        tmp_path,
        line(f"{day}:19.500000", f"{day}:20.000000", [TASK], {"input": 900, "output": 50}),
        {"type": "SPAN", "trace_id": "one", "start_time": f"{day}:20.100000"},
        line(
            f"{day}:22.250000",
            f"{day}:23.000000",
            [TASK, ANSWER, RESULT],
            {"input": 60, "input_cached_tokens": 940, "output": 10},
        ),
    )
    assert sessions == [[(900, 50, 0, 2.25), (1_000, 10, 950, 0.0)]]


def test_a_header_names_the_program_and_anthropics_cached_tokens_are_of_the_prompt(
    tmp_path: Path,
) -> None:
    line = {
        "timestamp": "2026-05-29T13:46:19Z",
        "duration_ms": 1_500,
        "headers": {"X-Claude-Code-Session-Id": "c1"},
        "request": {"system": "You are", "messages": [TASK]},
        "response": {
            "usage": {
                "input_tokens": 10,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 90,
                "output_tokens": 5,
            }
        },
    }
    later = line | {"timestamp": "2026-05-29T13:46:30+00:00"}
    assert log(tmp_path, line, later) == [[(1_000, 5, 0, 9.5), (1_000, 5, 1_000, 0.0)]]


def test_a_line_without_a_name_is_a_session_of_its_own(tmp_path: Path) -> None:
    line = {"timestamp": 1_700_000_000_000, "messages": [TASK], "usage": usage(10, 2)}
    assert log(tmp_path, line, line) == [[(10, 2, 0, 0.0)], [(10, 2, 0, 0.0)]]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{oops", "2: not JSON"),
        ("[1]", "2: not a JSON object"),
        ('{"usage": {"prompt_tokens": 1, "completion_tokens": 1}}', "2: no time"),
        ('{"timestamp": "noon", "usage": {}}', "2: timestamp = 'noon' is no time"),
        ('{"timestamp": 5, "messages": []}', "2: no usage"),
        ('{"timestamp": 5, "usage": {"prompt_tokens": -1, "completion_tokens": 1}}', "2: no usage"),
        (
            '{"timestamp": 5, "usage": {"prompt_tokens": 1, "completion_tokens": 1},'
            ' "headers": {"x-program-id": "a"}, "request": {"program_id": "b"}}',
            "2: ",
        ),
    ],
)
def test_a_line_that_makes_no_sense_is_named_by_its_number(
    tmp_path: Path, line: str, complaint: str
) -> None:
    file = tmp_path / "log.jsonl"
    good = '{"timestamp": 5, "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'
    file.write_text(f"{good}\n{line}\n")
    with pytest.raises(ConfigError, match=f"log.jsonl:{complaint}"):
        load(file)


def call(prompt: int, output: int, cached: int | None = None, pieces: str = "") -> Call:
    asked_s = float(prompt)
    return Call("a", asked_s, asked_s + 1, prompt, output, cached, pieces.split())


@pytest.mark.parametrize(
    ("before", "now", "shared"),
    [
        # Without texts: longer goes on, shorter was rewritten.
        (call(100, 20), call(130, 5), 120),
        (call(100, 20), call(110, 5, cached=64), 64),
        (call(100, 20), call(110, 5), 0),
        # With texts: what it was goes on, or the equal beginning of the characters.
        (call(100, 20, pieces="sys task"), call(130, 5, pieces="sys task answer"), 120),
        (call(100, 20, pieces="sys task"), call(110, 5, pieces="sys task answer"), 110),
        (call(100, 20, pieces="abcd efgh"), call(200, 5, pieces="abcd efzz zz"), 120),
        (call(100, 20, pieces="abcd"), call(200, 5, pieces="zbcd"), 0),
    ],
)
def test_how_much_of_a_prompt_the_turn_before_had(before: Call, now: Call, shared: int) -> None:
    ((_, second),) = sessions_of([before, now])
    assert second[2] == shared


def test_overlapping_calls_leave_no_pause_between_them() -> None:
    calls = [Call("a", 0, 10, 100, 5), Call("a", 4, 6, 110, 5), Call("b", 1, 2, 7, 1)]
    assert sessions_of(reversed(calls)) == [
        [(100, 5, 0, 0.0), (110, 5, 105, 0.0)],
        [(7, 1, 0, 0.0)],
    ]


def test_a_journal_becomes_a_trace_that_can_be_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace.json"
    assert main(["trace", "convert", str(TRACES / "adaptive.jsonl"), str(out)]) == 0
    assert capsys.readouterr().err == "read=journal sessions=21 turns=106\n"
    trace = load(out)
    assert trace.form == "trace"
    assert trace.sessions[1][:2] == [(5_011, 255, 0, 47.652), (6_243, 635, 5_266, 6.646)]
    day = ["--programs", "8", "--warmup-s", "0", "--measured-s", "120", "--seeds", "1", "--json"]
    for source in (out, TRACES / "adaptive.jsonl"):
        assert main(["simulate", "--workload", str(source), "--policy", "adaptive", *day]) == 0
    first, second = capsys.readouterr().out.split("}\n{")
    assert json.loads(first + "}")["days"] == json.loads("{" + second)["days"]


def test_what_is_written_is_read_again_and_more_than_four_numbers_are_the_recorders(
    tmp_path: Path,
) -> None:
    file = tmp_path / "trace.json"
    sessions: list[Session] = [[(10, 2, 0, 1.5), (20, 2, 12, 0.0)], [(5, 1, 0, 0.0)]]
    write(Trace(sessions, "trace"), file)
    assert load(file).sessions == sessions
    assert load(file).turns == 3
    file.write_text("[[[10, 2, 0, 1.5, 99]]]")
    assert load(file).sessions == [[(10, 2, 0, 1.5)]]
    with pytest.raises(ConfigError, match="Is a directory"):
        write(Trace(sessions, "trace"), tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[[1, 2, 3]]]", "session 1, turn 1: .* is not four numbers"),
        ("[[[1, 2, 3, 4]], [[1, 2, 3, 4], [1, -2, 3, 4]]]", "session 2, turn 2: .* below 0"),
        ("[[[1, 2, 3, 4]], 5]", "session 2 is not a list of turns"),
        ("[[[1, 2, 3, NaN]]]", "below 0"),
        ("[]", "no session"),
        ("[[]]", "session 1 is not"),
        ("[[", "not a list of sessions"),
        ("hello", "neither a trace"),
        ("", "neither a trace"),
        ('{"format":"thunder-journal-0","part":0}', "not a journal of this version"),
    ],
)
def test_a_file_that_makes_no_sense_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "trace.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"trace.json.*{complaint}"):
        load(file)


def test_a_file_of_bytes_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.bin"
    file.write_bytes(b"[\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(file)
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "nowhere.json")
