"""Token estimates before any usage, against two real tokenizers, on prompts made here."""

import importlib.util
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from tokenizers import Tokenizer

from thunder_router.scheduling.estimate import TokenEstimator

IMAGE_TOKENS = 1100
TEMPLATE_TOKENS = 14


@dataclass(frozen=True)
class Facts:
    text_bytes: int = 0
    text_chars: int = 0
    wide_chars: int = 0
    media_items: int = 0
    token_ids: int = 0
    messages: int = 2


def facts(text: str, media_items: int = 0) -> Facts:
    wide = sum("\u3040" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7a3" for c in text)
    return Facts(len(text.encode()), len(text), wide, media_items)


def code(rng: random.Random) -> str:
    """Plausible English Python, seeded."""
    nouns = ["worker", "request", "program", "queue", "cache", "token", "session", "decision"]
    verbs = ["admit", "release", "restore", "measure", "forward", "schedule", "collect"]
    lines = []
    for _ in range(rng.randrange(20, 400)):
        noun, other, verb = rng.choice(nouns), rng.choice(nouns), rng.choice(verbs)
        lines.append(
            rng.choice(
                [
                    f"def {verb}_{noun}(self, {other}: int) -> None:",
                    f'        """{verb.title()} the {noun} before its {other} is gone."""',
                    f"        if self.{noun}s[{rng.randrange(99)}] is not {other}:",
                    f"            raise ValueError(f'no such {noun}: {{{other}!r}}')",
                    f"        return self._{verb}({noun}.{other}_id, timeout={rng.random():.2f})",
                ]
            )
        )
    return "\n".join(lines)


def chinese(rng: random.Random) -> str:
    sentences = [
        "我们需要先检查调度器的状态，然后把暂停的程序恢复到原来的工作节点上。",
        "如果缓存已经被清空，就必须重新计算全部上下文，这会浪费大量的时间。",
        "请在修改代码之前阅读文档，并且运行所有测试。",
        "这个错误只在并发请求超过容量时出现，因此很难在本地重现。",
    ]
    return "".join(rng.choice(sentences) for _ in range(rng.randrange(5, 200)))


def tools(rng: random.Random) -> str:
    properties = {
        key: {"type": "string", "description": f"The {key} that the command works on"}
        for key in ("path", "command", "pattern", "cwd")
    }
    return json.dumps(
        [
            {
                "type": "function",
                "function": {
                    "name": f"tool_{index}",
                    "description": "Runs a command in the sandbox and gives its output back.",
                    "parameters": {"type": "object", "properties": properties},
                },
            }
            for index in range(rng.randrange(3, 30))
        ]
    )


@pytest.fixture(scope="module", params=["anthropic", "deepseek"])
def count(request: pytest.FixtureRequest) -> Callable[[str], int]:
    """A real tokenizer, out of the files that litellm carries."""
    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0], "litellm_core_utils", "tokenizers")
    tokenizer = Tokenizer.from_file(str(folder / f"{request.param}_tokenizer.json"))
    return lambda text: len(tokenizer.encode(text).ids) + TEMPLATE_TOKENS


def errors(
    estimator: TokenEstimator, count: Callable[[str], int], prompts: list[tuple[str, int]]
) -> list[float]:
    """Relative error of each estimate, learning after each."""
    found = []
    for text, media in prompts:
        truth = count(text) + media * IMAGE_TOKENS
        scanned = facts(text, media)
        found.append(abs(estimator.estimate("m", scanned) / truth - 1))
        estimator.learn("m", scanned, truth)
    return found


@pytest.mark.parametrize("kind", [code, chinese, tools])
def test_after_three_samples_the_error_stays_under_20_percent(
    count: Callable[[str], int], kind: Callable[[random.Random], str]
) -> None:
    rng = random.Random(7)
    found = errors(TokenEstimator(), count, [(kind(rng), 0) for _ in range(12)])
    assert max(found[3:]) < 0.20


def test_a_mix_of_everything_with_images_settles_under_20_percent(
    count: Callable[[str], int],
) -> None:
    rng = random.Random(3)
    kinds = [code, chinese, tools]
    prompts = [
        (rng.choice(kinds)(rng) + rng.choice(kinds)(rng), rng.choice([0, 0, 1, 3]))
        for _ in range(60)
    ]
    found = errors(TokenEstimator(), count, prompts)
    assert sorted(found[20:])[36] < 0.20, "9 of 10 after twenty samples"
    assert sum(found[20:]) / 40 < 0.10


def test_a_megabyte_of_base64_is_one_image_not_text() -> None:
    estimator = TokenEstimator()
    with_image = Facts(text_bytes=400, text_chars=400, media_items=1)
    assert estimator.estimate("m", with_image) < 2_000
    for _ in range(3):
        estimator.learn("m", with_image, 100 + IMAGE_TOKENS)
    assert abs(estimator.estimate("m", with_image) / (100 + IMAGE_TOKENS) - 1) < 0.05


def test_token_ids_are_counted_not_estimated() -> None:
    estimator = TokenEstimator()
    prompt = Facts(token_ids=4_321, messages=0)
    assert estimator.estimate("m", prompt) == 4_321
    estimator.learn("m", prompt, 4_321)
    text = Facts(text_bytes=1_000, text_chars=1_000)
    assert estimator.estimate("m", text) == TokenEstimator().estimate("m", text)


def test_models_learn_apart() -> None:
    estimator = TokenEstimator()
    prompt = Facts(text_bytes=10_000, text_chars=10_000)
    before = estimator.estimate("a", prompt)
    for _ in range(4):
        estimator.learn("b", prompt, 5_000)
    assert estimator.estimate("a", prompt) == before
    assert abs(estimator.estimate("b", prompt) - 5_000) < 250


def test_a_change_of_traffic_is_followed_after_long_agreement() -> None:
    estimator = TokenEstimator()
    prompt = Facts(text_bytes=10_000, text_chars=10_000)
    for _ in range(500):
        estimator.learn("m", prompt, 2_600)
    for _ in range(8):
        estimator.learn("m", prompt, 4_000)
    assert abs(estimator.estimate("m", prompt) / 4_000 - 1) < 0.15


def test_invented_model_names_do_not_grow_the_table() -> None:
    estimator = TokenEstimator()
    prompt = Facts(text_bytes=10_000, text_chars=10_000)
    estimator.learn("first", prompt, 5_000)
    for index in range(200):
        estimator.learn(f"invented-{index}", prompt, 5_000)
    fresh = TokenEstimator().estimate("first", prompt)
    assert estimator.estimate("first", prompt) == fresh, "the oldest model was forgotten"
    assert len(cast("dict[str, object]", vars(estimator)["_models"])) == 64


@pytest.mark.parametrize("truth", [0, -5, 1, 10**9])
def test_absurd_usage_never_breaks_later_estimates(truth: int) -> None:
    estimator = TokenEstimator()
    prompt = Facts(text_bytes=8_000, text_chars=6_000, wide_chars=1_000, media_items=1)
    estimator.learn("m", prompt, truth)
    for _ in range(20):
        estimator.learn("m", prompt, 3_000)
    assert abs(estimator.estimate("m", prompt) / 3_000 - 1) < 0.2
    assert estimator.estimate("m", Facts(messages=0)) == 1


def test_a_worker_that_counts_every_prompt_the_same_drives_no_estimate_away() -> None:
    estimator = TokenEstimator()
    small, large = Facts(80, 80), Facts(95_000, 94_000, messages=38)
    for prompt in [small, large] * 2_000:
        estimator.learn("m", prompt, 100)
        assert estimator.estimate("m", large) < 60_000
    for _ in range(60):
        estimator.learn("m", large, 25_000)
    assert abs(estimator.estimate("m", large) / 25_000 - 1) < 0.2
