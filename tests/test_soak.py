"""Many programs against workers that fail at random, and clients that leave at random.

`THUNDER_SOAK=20000 pytest tests/test_soak.py --timeout 1200` runs it at length.
"""

import asyncio
import contextlib
import os
import random
from collections import Counter

import httpx

from router import routing
from small_worker import Asked, SmallWorker, generate, small_workers
from test_faults_http import EXITS

REQUESTS = int(os.environ.get("THUNDER_SOAK", "250"))
AT_ONCE = 24


async def answer_somehow(asked: Asked, rng: random.Random) -> None:
    """Mostly well, sometimes in one of the ways in which workers fail, sometimes never."""
    chance = rng.random()
    with contextlib.suppress(OSError):  # the router may have closed the connection meanwhile
        if chance < 0.06:
            await rng.choice(EXITS)(asked)
        elif chance < 0.08:
            await asyncio.sleep(0.2)
            await asked.reset()
        else:
            await asyncio.sleep(rng.random() * 0.01)
            await asked.answer(completion=rng.randrange(1, 40))


async def work(worker: SmallWorker, rng: random.Random) -> None:
    """Answers everything that comes, all at once."""
    async with asyncio.TaskGroup() as answers:
        while True:
            if not worker.asked:
                worker.arrived.clear()
                await worker.arrived.wait()
                await asyncio.sleep(0)
                continue
            answers.create_task(answer_somehow(worker.asked.popleft(), rng))


async def test_after_random_faults_all_counts_are_exact() -> None:
    rng = random.Random(11)
    section = {"policy": "adaptive", "tick_s": 0.05, "reservation_s": 0.5, "hold_limit_s": 5.0}
    section |= {"lease_s": 0.1, "lease_min_s": 0.2}
    outcomes: Counter[str] = Counter()
    async with small_workers(4_000, 3_000, 2_000) as workers:
        urls = [worker.url for worker in workers]
        async with routing(urls, scheduling=section) as house:
            working = [asyncio.create_task(work(worker, rng)) for worker in workers]
            left = iter(range(REQUESTS))
            sizes: dict[str, int] = {}

            async def agent(number: int) -> None:
                program = f"agent-{number}"
                for turn in left:
                    if rng.random() < 0.1:
                        release = {"program_id": program}
                        await house.client.post("/programs/release", json=release)
                        program = f"agent-{number}-{turn}"
                    size = sizes.get(program, rng.randrange(50, 400)) + rng.randrange(40)
                    sizes[program] = min(size, 1_500)
                    body = generate(program, sizes[program], stream=rng.random() < 0.3)
                    patience = 0.05 if rng.random() < 0.08 else 20
                    try:
                        async with asyncio.timeout(patience):
                            answer = await house.client.post("/generate", json=body)
                        outcomes[str(answer.status_code)] += 1
                    except TimeoutError:
                        outcomes["left"] += 1
                    except httpx.HTTPError:
                        outcomes["broken"] += 1

            await asyncio.gather(*(agent(number) for number in range(AT_ONCE)))
            await house.quiet()
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            [pool] = house.router.driver.pools
            assert (pool.counts["core_failure"], pool.counts["plain"]) == (0, 0)
            assert sum(outcomes.values()) == REQUESTS
            assert outcomes["200"] > REQUESTS * 0.6
            assert outcomes["left"] > 0
            listed = (await house.client.get("/programs?limit=10000")).json()
            for program, shown in listed.items():
                assert (shown["in_flight"], shown["waiting"]) == (0, 0)
                assert shown["context_len"] <= sizes[program] + 60
            for program in listed:
                await house.client.post("/programs/release", json={"program_id": program})
            assert (await house.quiet())["programs"] == 0
