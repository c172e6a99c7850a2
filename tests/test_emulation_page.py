"""docs/emulation.md keeps step with the code: every option, every name, and its example runs."""

import contextlib
import io
import re
from pathlib import Path

from thunder_router.emulator import EmulatorOptions
from thunder_router.emulator.simulation import ROUTERS, models, workloads

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "emulation.md").read_text(encoding="utf-8")


def test_every_option_stands_there_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", PAGE, re.MULTILINE))
    defaults = {
        name: "none" if field.default is None else f"`{field.default}`"
        for name, field in EmulatorOptions.model_fields.items()
    }
    assert rows == defaults


def test_every_model_workload_router_and_test_named_exists() -> None:
    for name in (*models(), *workloads(), *ROUTERS):
        assert f"`{name}`" in PAGE
    for path in re.findall(r"`((?:rust|tests)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(example, "docs/emulation.md", "exec"), {})
    rates = [int(rate) for rate in re.findall(r"(\d+) steps/min", said.getvalue())]
    assert len(rates) == 2
    assert rates[1] > 3 * rates[0], "scheduling is worth its while on this day"
