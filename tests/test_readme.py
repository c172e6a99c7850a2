"""The front page works: each command in it is run, from the top, as a reader would."""

from pathlib import Path

import pytest

from shell_blocks import Block, Reader, blocks

ROOT = Path(__file__).parent.parent


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    with Reader(ROOT, tmp_path) as reader:
        for block in blocks((ROOT / "README.md").read_text()):
            reader.read(block)


def page(*parts: str) -> list[Block]:
    return list(blocks("\n".join(parts)))


def test_a_block_is_found_with_its_language_its_line_and_the_comment_above() -> None:
    found = page("# t", "<!-- run: as true -->", "```sh", "false", "```", "", "```text", "x", "```")
    assert found == [Block(3, "sh", "false\n", "run: as true"), Block(7, "text", "x\n", "")]


def test_a_failing_command_fails_with_its_line(tmp_path: Path) -> None:
    reader = Reader(tmp_path, tmp_path)
    with pytest.raises(AssertionError, match="line 2: false"):
        reader.read(Block(2, "sh", "false\n", ""))
    reader.read(Block(2, "sh", "false\n", "run: as true"))
    reader.read(Block(2, "python", "false\n", ""))


def test_output_is_compared_line_by_line_but_for_its_numbers(tmp_path: Path) -> None:
    reader = Reader(tmp_path, tmp_path)
    reader.read(Block(1, "sh", "echo a; echo 'took  1,234.5 ms'; echo b", ""))

    reader.read(Block(2, "text", "a\ntook 7 ms\n", "output"))
    reader.read(Block(2, "text", "a\n...\nb\n", "output"))
    with pytest.raises(AssertionError, match="not printed: a"):
        reader.read(Block(2, "text", "b\na\n", "output"))


def test_what_serves_runs_on_for_later_blocks_and_ends_with_the_page(tmp_path: Path) -> None:
    server = "python3 -u -m http.server --bind 127.0.0.1 --directory . 8000"
    with Reader(tmp_path, tmp_path) as reader:
        serve = server.replace(" 8000", " $(echo 127.0.0.1:8000 | cut -d: -f2)")
        reader.read(Block(1, "sh", serve, 'run: until "Serving HTTP on"'))
        reader.read(
            Block(
                5,
                "sh",
                "python3 -c 'import urllib.request as u; "
                'print(u.urlopen("http://127.0.0.1:8000").status)\'',
                "",
            )
        )
        assert reader.said == "200\n"
        reader.read(Block(6, "sh", "echo 127.0.0.1:8000", ""))
        assert reader.said != "127.0.0.1:8000\n"
        (child,) = reader._serving
    assert child.returncode != 0


def test_a_block_run_elsewhere_must_be_named_there(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("demo:\n\ttrue\n")
    reader = Reader(tmp_path, tmp_path)

    reader.read(Block(1, "sh", "make demo   # a minute\n", "run: elsewhere in Makefile"))
    with pytest.raises(AssertionError, match="does not run 'make moon'"):
        reader.read(Block(1, "sh", "make moon\n", "run: elsewhere in Makefile"))
