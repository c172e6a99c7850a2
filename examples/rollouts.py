"""RL rollouts, as SkyRL, slime, miles and verl make them: token ids in, token ids out.

    pip install httpx
    python examples/rollouts.py

Each trajectory is a program: its turns stay where their KV cache is, and while a tool runs its
place may go to another. The samples of one prompt share a group. Between two steps the trainer
exchanges the weights: from `begin` on, new turns wait in the router; after `end` they go on, and no
worker is taken to hold any KV cache.
"""

import asyncio
import os
import random
import uuid

import httpx

ROUTER = os.environ.get("THUNDER_ROUTER", "http://127.0.0.1:30000")
ADMIN_KEY = os.environ.get("THUNDER_ADMIN_KEY", "")  # for weight syncs, where one is set
STEPS, PROMPTS, SAMPLES, TURNS = 2, 2, 4, 3


async def trajectory(client: httpx.AsyncClient, group: str, prompt: list[int]) -> list[int]:
    """One sample: generate, run the tool, append what it said, and so on."""
    program = f"{group}-{uuid.uuid4().hex[:8]}"
    ids = list(prompt)
    try:
        for _ in range(TURNS):
            answer = await client.post(
                "/generate",
                json={
                    "input_ids": ids,
                    "sampling_params": {"max_new_tokens": 32, "temperature": 1.0},
                    "program_id": program,  # cut out before the worker sees the request
                },
                headers={"X-Thunder-Group-Id": group},
            )
            answer.raise_for_status()
            ids += answer.json()["output_ids"]
            ids += await run_tool(ids)
    finally:
        # Also when the trainer cancels the sample: that is when its place is wasted most.
        await asyncio.shield(client.post("/programs/release", json={"program_id": program}))
    return ids


async def run_tool(ids: list[int]) -> list[int]:
    """A stand-in for the environment's step: a short wait, and a few tokens of output."""
    await asyncio.sleep(0.05)
    return [ids[-1] + 1, 7, 7, 7]


async def exchange_weights(client: httpx.AsyncClient) -> None:
    """Holds all programs while the trainer loads new weights into the workers."""
    key = {"Authorization": f"Bearer {ADMIN_KEY}"} if ADMIN_KEY else {}
    (await client.post("/weight_sync/begin", headers=key)).raise_for_status()
    try:
        # Here the trainer does what it does today, on the workers themselves or through the router,
        # which sends /pause_generation, /update_weights_from_distributed and so on to all of them.
        await asyncio.sleep(0)
    finally:
        # If this never comes, scheduling.weight_sync_timeout_s ends the sync.
        (await client.post("/weight_sync/end", headers=key)).raise_for_status()


async def main() -> None:
    """A few steps of training without the training."""
    chance = random.Random(0)
    limits = httpx.Limits(max_connections=None)  # the router decides how many run
    async with httpx.AsyncClient(base_url=ROUTER, timeout=3600, limits=limits) as client:
        for step in range(STEPS):
            prompts = [[chance.randrange(1000, 50_000) for _ in range(256)] for _ in range(PROMPTS)]
            samples = await asyncio.gather(
                *(
                    trajectory(client, f"step{step}-prompt{number}", prompt)
                    for number, prompt in enumerate(prompts)
                    for _ in range(SAMPLES)
                )
            )
            print(f"step {step}: {len(samples)} samples, {sum(map(len, samples))} tokens")
            await exchange_weights(client)


if __name__ == "__main__":
    asyncio.run(main())
