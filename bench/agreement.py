"""Does the emulated worker, over HTTP and faster than real, do what the simulator says it does?

    python -m bench.agreement                              speeds 5, 10 and 20, five virtual minutes
    python -m bench.agreement --speeds 20 --minutes 15     longer, closer
    python -m bench.agreement --json                       figures on stdout

The same programs by the same seed go through the simulator and, as chat requests, through one
emulated worker in a process of its own. Throughput and hit rate must agree within 5 %. A run whose
events were heard late (99th percentile above 2 % of a turn) fails itself: the machine was too slow
for that speed, and the figures mean nothing.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
from dataclasses import asdict, dataclass

import aiohttp
import uvloop

from bench.processes import free_port
from thunder_router.config import SchedulingSettings
from thunder_router.emulator import EmulatorOptions, serve
from thunder_router.emulator.programs import AgentProgram, chat_request
from thunder_router.emulator.simulation import SimulationOptions, simulate

TOLERANCE = 0.05
LAG_SHARE = 0.02
BYTES_PER_TOKEN = 1.0


@dataclass
class Outcome:
    """One speed. Rates are per virtual minute, times in virtual seconds."""

    speed: float
    steps_per_min: float
    simulated_steps_per_min: float
    hit_rate: float
    simulated_hit_rate: float
    turn_s: float
    event_lag_p99_s: float
    """How late the worker heard of its engine's events, or the client of its tools' ends."""

    @property
    def verdict(self) -> str:
        """Whether the run counts, and what it says."""
        if self.event_lag_p99_s > LAG_SHARE * self.turn_s:
            return "TOO SLOW A MACHINE"
        off = abs(self.steps_per_min / self.simulated_steps_per_min - 1)
        off = max(off, abs(self.hit_rate - self.simulated_hit_rate))
        return "agrees" if off <= TOLERANCE else "DISAGREES"


class Played:
    """Programs in a closed loop against one worker."""

    def __init__(self, options: SimulationOptions, seed: int, speed: float, url: str) -> None:
        self.options = options
        self.seed = seed
        self.speed = speed
        self.url = url
        self.steps = self.prompt = self.cached = 0
        self.turn_s = 0.0
        self.lags_s: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()

    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return (self._loop.time() - self._start) * self.speed

    async def slot(self, client: aiohttp.ClientSession, slot: int) -> None:
        """One program after another, until the day is over."""
        options, ordinal = self.options, 0
        end_s = options.warmup_s + options.measured_s
        while True:
            program = AgentProgram(
                workload=options.workload,
                seed=self.seed,
                slot=slot,
                ordinal=ordinal,
                tool_scale=options.tool_scale,
                midway=ordinal == 0,
            )
            while (turn := program.turn()) is not None:
                asked_s = self.now_s()
                body = chat_request(turn, BYTES_PER_TOKEN)
                async with client.post(f"{self.url}/v1/chat/completions", json=body) as answer:
                    usage = (await answer.json())["usage"]
                now_s = self.now_s()
                if now_s >= end_s:
                    return
                if now_s >= options.warmup_s:
                    self.steps += 1
                    self.turn_s += now_s - asked_s
                    self.prompt += usage["prompt_tokens"]
                    self.cached += usage["prompt_tokens_details"]["cached_tokens"]
                if turn.tool is not None:
                    due = self._loop.time() + turn.tool_us / 1e6 / self.speed
                    await asyncio.sleep(due - self._loop.time())
                    self.lags_s.append((self._loop.time() - due) * self.speed)
            ordinal += 1


async def play(options: SimulationOptions, seed: int, speed: float, port: int) -> Outcome:
    """One day over HTTP, beside the same day simulated."""
    url = f"http://127.0.0.1:{port}"
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        await until_up(client, url)
        played = Played(options, seed, speed, url)
        await asyncio.gather(*(played.slot(client, slot) for slot in range(options.programs)))
        async with client.get(f"{url}/server_info") as answer:
            lag_s = (await answer.json())["emulated"]["event_lag_p99_s"]
    late = sorted(played.lags_s)
    lag_s = max(lag_s, late[len(late) * 99 // 100])
    simulated = simulate(options, "pinned", SchedulingSettings(), seed=seed)
    return Outcome(
        speed=speed,
        steps_per_min=played.steps * 60 / options.measured_s,
        simulated_steps_per_min=simulated.steps_per_min,
        hit_rate=played.cached / max(1, played.prompt),
        simulated_hit_rate=simulated.hit_rate,
        turn_s=played.turn_s / max(1, played.steps),
        event_lag_p99_s=lag_s,
    )


async def until_up(client: aiohttp.ClientSession, url: str) -> None:
    """Returns once the worker answers."""
    async with asyncio.timeout(30):
        while True:
            try:
                async with client.get(f"{url}/ready"):
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


def main() -> int:
    """Runs each speed; 0 if all agree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--speeds", default="5,10,20")
    parser.add_argument("--minutes", type=int, default=5, help="virtual, measured")
    parser.add_argument("--workload", default="mini-swe")
    parser.add_argument("--programs", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    options = SimulationOptions(
        workload=arguments.workload,
        programs=arguments.programs,
        warmup_s=60,
        measured_s=arguments.minutes * 60,
    )
    outcomes = []
    for speed in map(float, arguments.speeds.split(",")):
        port = free_port()
        worker = EmulatorOptions(port=port, speed=speed, bytes_per_token=BYTES_PER_TOKEN)
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(worker,))
        process.start()
        try:
            outcomes.append(uvloop.run(play(options, arguments.seed, speed, port)))
        finally:
            process.terminate()
            process.join()
        if not arguments.json:
            say(outcomes[-1])
    if arguments.json:
        print(json.dumps([asdict(one) | {"verdict": one.verdict} for one in outcomes], indent=1))
    return 0 if all(one.verdict == "agrees" for one in outcomes) else 1


def say(one: Outcome) -> None:
    """One line."""
    print(
        f"speed {one.speed:4.0f}: {one.steps_per_min:6.1f} steps/min over HTTP,"
        f" {one.simulated_steps_per_min:6.1f} simulated;"
        f" hit rate {one.hit_rate:.3f}, {one.simulated_hit_rate:.3f} simulated;"
        f" events heard {one.event_lag_p99_s * 1e3:.0f} ms late (p99), turns {one.turn_s:.1f} s:"
        f" {one.verdict}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
