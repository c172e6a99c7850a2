"""The simulator's programs, sent as chat requests, find in the worker what they should."""

from emulated import emulated
from thunder_router.emulator.programs import AgentProgram, chat_request


def program(ordinal: int) -> AgentProgram:
    return AgentProgram(
        workload="openhands", seed=1, slot=0, ordinal=ordinal, tool_scale=1.0, midway=False
    )


async def test_each_turn_finds_the_turns_before_but_for_a_block() -> None:
    async with emulated(capacity_tokens=200_000, bytes_per_token=1.0) as client:
        for ordinal in range(2):
            playing = program(ordinal)
            turns = 0
            while (turn := playing.turn()) is not None:
                body = chat_request(turn, 1.0)
                answer = (await client.post("/v1/chat/completions", json=body)).json()
                usage = answer["usage"]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                assert usage["prompt_tokens"] == sum(tokens for _, tokens in turn.prompt)
                assert usage["completion_tokens"] == turn.answer[1]
                if ordinal or turns:
                    # A message has eight bytes and its frame at least: a little more than it says.
                    assert abs(turn.reusable_tokens - cached) < 64 + 20 * turns
                turns += 1
            assert turns > 5


def test_the_same_name_is_the_same_program_and_roles_alternate() -> None:
    once, again, other = program(1).turn(), program(1).turn(), program(2).turn()
    assert once is not None
    assert again is not None
    assert other is not None
    assert once.prompt == again.prompt
    assert once.prompt[0] == other.prompt[0], "the shared prefix"
    assert once.prompt[1] != other.prompt[1], "its own task"
    roles = [message["role"] for message in chat_request(once, 1.0)["messages"]]
    assert roles == ["system", "user"]
