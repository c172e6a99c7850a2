"""How many tokens a prompt has, before any worker has counted it.

Theory of operation. A body scan says how much text, wide script, media and how many messages there
are; tokens are close to a linear function of these, but the weights differ per model (tokenizer,
chat template, image resolution). So each model has its own weights, started from priors and moved
by recursive least squares whenever a worker's usage says the truth. Errors are taken relative to
the size of the prompt, so that one long prompt does not drown a hundred short ones.

Text, media and token ids are told apart from the start: a megabyte of base64 is one image, not
200,000 tokens, and a prompt of token ids is counted, not estimated.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

__all__ = ["PromptFacts", "TokenEstimator"]


class PromptFacts(Protocol):
    """What a body scan says about the size of a prompt."""

    @property
    def text_bytes(self) -> int: ...  # noqa: D102
    @property
    def text_chars(self) -> int: ...  # noqa: D102
    @property
    def wide_chars(self) -> int: ...  # noqa: D102
    @property
    def media_items(self) -> int: ...  # noqa: D102
    @property
    def token_ids(self) -> int: ...  # noqa: D102
    @property
    def messages(self) -> int: ...  # noqa: D102


# Feature order: narrow characters, their bytes beyond one each (Cyrillic, emoji), wide characters,
# media items, messages. Weights in tokens per unit.
_PRIOR: Final = (0.27, 0.25, 0.8, 800.0, 5.0)
"""Source: cl100k and o200k on code, prose, Chinese and Cyrillic; images at 512 to 1,024 pixels."""
_PRIOR_DEVIATION: Final = (0.10, 0.25, 0.30, 800.0, 5.0)
"""How far a model's weight may plausibly lie from the prior: what the first samples may move."""
_NOISE: Final = 0.06**2
"""Variance of the relative error that is the text's own, not the weights' fault."""
_FORGET: Final = 0.98
"""Weight of the past per sample, so that a change of traffic is followed."""
_GOOD_ENOUGH: Final = (0.04, 0.12)
"""Relative errors too small to be worth a lesson, while young and once grown."""
_GROWN: Final = 32
"""Lessons after which a model's weights count as grown."""
_MODELS: Final = 64
"""Models remembered; clients may send any name."""

_Features = tuple[float, float, float, float, float]


class TokenEstimator:
    """Prompt tokens per model, learned online.

    >>> estimator = TokenEstimator()
    >>> estimator.estimate("m", facts)      # from priors
    >>> estimator.learn("m", facts, 1234)   # what the worker counted
    """

    def __init__(self) -> None:
        self._models: OrderedDict[str, _Weights] = OrderedDict()

    def estimate(self, model: str, facts: PromptFacts) -> int:
        """Tokens of this prompt, at least 1; exact where it is token ids alone."""
        if facts.token_ids and not facts.text_chars and not facts.media_items:
            return facts.token_ids
        weights = self._models.get(model)
        tokens = _dot(_PRIOR if weights is None else weights.values, _features(facts))
        return max(1, round(tokens) + facts.token_ids)

    def learn(self, model: str, facts: PromptFacts, prompt_tokens: int) -> int:
        """A worker counted this prompt: `prompt_tokens` in all.

        Returns:
            What the prompt would now be estimated at.
        """
        text_tokens = prompt_tokens - facts.token_ids
        features = _features(facts)
        if text_tokens <= 0 or not (features[0] or features[2] or features[3]):
            return max(1, facts.token_ids or prompt_tokens)
        weights = self._models.get(model)
        if weights is None:
            weights = self._models[model] = _Weights()
            if len(self._models) > _MODELS:
                self._models.popitem(last=False)
        else:
            self._models.move_to_end(model)
        return max(1, round(weights.learn(features, text_tokens)) + facts.token_ids)


class _Weights:
    """One model's weights and how sure they are (their covariance)."""

    __slots__ = ("_covariance", "_lessons", "values")

    def __init__(self) -> None:
        self._lessons = 0
        self.values: list[float] = list(_PRIOR)
        self._covariance = _unsure()

    def learn(self, features: _Features, tokens: int) -> float:
        """One step of recursive least squares with forgetting, in units of the prompt's size.

        Returns the estimate after it.

        Source: Haykin, Adaptive Filter Theory, the exponentially weighted RLS recursion.
        """
        before = _dot(self.values, features)
        error = 1.0 - before / tokens
        if abs(error) < _GOOD_ENOUGH[self._lessons >= _GROWN]:
            return before
        self._lessons += 1
        scale = 1.0 / tokens
        x = [feature * scale for feature in features]
        px = [_dot(row, x) for row in self._covariance]
        denominator = _FORGET * _NOISE + _dot(px, x)
        gain = [value / denominator for value in px]
        # A weight cannot be negative, nor vanish for good: a tenth of the prior is kept.
        moved = [
            max(value + step * error, prior * 0.1)
            for value, step, prior in zip(self.values, gain, _PRIOR, strict=True)
        ]
        if abs(1.0 - _dot(moved, x)) >= abs(error):
            # No weights within these bounds explain the sample (a worker that counts the same for
            # every prompt). To follow it would drive the free ones to infinity; that it came shows
            # that little is known.
            self._covariance = _unsure()
            return before
        self.values = moved
        for row, step in zip(self._covariance, gain, strict=True):
            for column, value in enumerate(px):
                row[column] = (row[column] - step * value) / _FORGET
        # Forgetting must not blow up what no sample exercises (a model that never sees an image).
        for index, deviation in enumerate(_PRIOR_DEVIATION):
            if self._covariance[index][index] > deviation**2:
                shrink = deviation / self._covariance[index][index] ** 0.5
                for other in range(len(_PRIOR)):
                    self._covariance[index][other] *= shrink
                    self._covariance[other][index] *= shrink
        return _dot(self.values, features)


def _unsure() -> list[list[float]]:
    """The covariance of weights of which only the priors are known."""
    return [
        [deviation**2 if row == column else 0.0 for column in range(len(_PRIOR))]
        for row, deviation in enumerate(_PRIOR_DEVIATION)
    ]


def _features(facts: PromptFacts) -> _Features:
    wide = facts.wide_chars
    narrow = facts.text_chars - wide
    extra = max(0, facts.text_bytes - narrow - 3 * wide)
    return (narrow, extra, wide, facts.media_items, facts.messages)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    # Written out: this runs on every request, and a loop costs four times as much.
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3] + a[4] * b[4]
