"""Images on a real engine, from a real registry: pulls, exact eviction, and a full disk."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from containers import registry as registries
from containers.lab import Lab, owns, settled, until
from containers.layered_images import MIB, Recipe, archive
from containers.private_engine import PrivateEngine, lacking
from containers.registry import Registry, Tap
from thunder_router.environment_settings import (
    DiskSettings,
    DockerSettings,
    ImageSettings,
    PreparationSettings,
    ProbeSettings,
    TemplateSettings,
)
from thunder_router.environments.disk import Room
from thunder_router.environments.eviction import exclusive_bytes
from thunder_router.environments.registry import compressed_bytes


def published(
    client: docker.DockerClient, registry: Registry, recipes: dict[str, Recipe]
) -> dict[str, str]:
    """Pushes the images, and takes them off the engine again; returns their names there."""
    list(client.api.load_image(archive(list(recipes.values()))))
    names = {}
    for key, recipe in recipes.items():
        names[key] = f"{registry.host}/swe/{key}:1"
        client.images.get(recipe.tag).tag(names[key])
        for line in client.api.push(names[key], stream=True, decode=True):
            assert "error" not in line, line
    for key, recipe in recipes.items():
        client.images.remove(names[key])
        client.images.remove(recipe.tag)
    return names


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    if why := registries.lacking():
        pytest.skip(why)
    with Registry(tmp_path / "registry") as registry:
        yield registry


def template(image: str) -> TemplateSettings:
    return TemplateSettings(
        match="^p-",
        image=image,
        init=("mkdir", "/testbed/repo"),
        probe=ProbeSettings(exec=("ls", "/testbed/repo"), interval_s=0.05, timeout_s=10),
    )


async def test_an_environment_is_pulled_made_initialized_and_probed_and_goes_again(
    lab: Lab, registry: Registry, pair: dict[str, Recipe]
) -> None:
    names = await lab.call(published, lab.client, registry, pair)
    programs = [lab.program(number) for number in range(3)]
    settings = lab.settings(
        images=ImageSettings(allow=("127.0.0.1:*/swe/*",), min_idle_s=0, prefetch_window_s=0),
        templates={"swe": template(names["a"])},
        disk=DiskSettings(high=0.0, low=0.0, reserve_bytes=0),
    )
    compressed = await compressed_bytes(names["a"])
    assert compressed is not None
    assert compressed > 3 * MIB
    async with lab.router(settings) as environments:
        for program in programs:
            environments.prepare(program, 0)
        for program in programs:
            view = await settled(environments, program)
            assert view.state == "ready", view.error
            container = await lab.call(lab.client.containers.get, view.container)
            assert container.attrs["HostConfig"]["SecurityOpt"] == ["no-new-privileges"]
            listing = await lab.call(container.exec_run, ["ls", "/testbed"])
            assert listing.output == b"repo\n"
        assert environments.status().tally["prepared"] == 3
        for program in programs:
            environments.released(program)
        await until(environments, lambda: not environments.resources())
        # The image was pulled by this router, is idle, and the disk is always too full here.
        await environments.disk.look()
        await until(environments, lambda: not environments.images())
        with pytest.raises(docker.errors.ImageNotFound):
            await lab.call(lab.client.images.get, names["a"])


async def test_a_pull_that_is_cut_fails_open_and_works_once_the_registry_is_whole(
    lab: Lab, registry: Registry, pair: dict[str, Recipe]
) -> None:
    names = await lab.call(published, lab.client, registry, pair)
    program = lab.program(1)
    async with Tap(registry.port, cut_after=MIB) as tap:
        image = names["b"].replace(registry.host, tap.host)
        settings = lab.settings(
            # The engine itself would try again for a minute.
            docker=DockerSettings(host=lab.host, pull_timeout_s=2),
            prepare=PreparationSettings(attempts=2),
            images=ImageSettings(allow=("127.0.0.1:*/swe/*",), min_idle_s=0, prefetch_window_s=0),
            templates={"swe": template(image)},
        )
        async with lab.router(settings) as environments:
            environments.prepare(program, 0)
            assert (await settled(environments, program)).state == "failed"
            assert tap.cuts > 0
            # The program is served all the same, and may be prepared again.
            environments.request(program)
            await owns(environments, program, 0)
            tap.open = True
            environments.prepare(program, 0)
            assert (await settled(environments, program)).state == "ready"
            environments.released(program)
            await owns(environments, program, 0)
            assert environments.status().images_ours == 1
        await lab.call(lab.client.images.remove, image)


async def test_eviction_and_preparing_race_and_no_creation_fails(
    lab: Lab, registry: Registry, pair: dict[str, Recipe]
) -> None:
    names = await lab.call(published, lab.client, registry, pair)
    settings = lab.settings(
        images=ImageSettings(allow=("127.0.0.1:*/swe/*",), min_idle_s=0, prefetch_window_s=0),
        templates={"swe": template(names["a"])},
        disk=DiskSettings(high=0.0, low=0.0, reserve_bytes=0, interval_s=0.05),
        prepare=PreparationSettings(ahead=100, attempts=1),
    )
    async with lab.router(settings) as environments:
        for number in range(6):
            program = lab.program(number)
            looking = asyncio.create_task(environments.disk.look())
            environments.prepare(program, 0)
            assert (await settled(environments, program)).state == "ready"
            environments.released(program)
            await owns(environments, program, 0)
            await looking
        await until(environments, lambda: not environments.images())
        assert environments.status().tally["evictions"] >= 1


@pytest.fixture
def small_engine(run: str, tmp_path: Path) -> Iterator[PrivateEngine]:
    """An engine on a small disk of its own."""
    if why := lacking() or registries.lacking():
        pytest.skip(why)
    with PrivateEngine(Path(f"/tmp/thunder-{run}-small"), f"{run}-small") as engine:
        engine.limit_disk("120m")
        engine.up()
        yield engine


async def test_evicting_one_of_two_images_frees_exactly_what_only_it_had(
    small_engine: PrivateEngine,
    images: dict[str, Recipe],
    pair: dict[str, Recipe],
    run: str,
    tmp_path: Path,
) -> None:
    client = docker.DockerClient(base_url=small_engine.host, timeout=60)
    list(client.api.load_image(archive(list(images.values()))))
    with (
        Registry(tmp_path / "registry", small_engine.namespace) as registry,
        Lab(small_engine.host, client, images, run, tmp_path) as lab,
    ):
        names = published(client, registry, pair)
        program = lab.program(1)
        settings = lab.settings(
            images=ImageSettings(allow=("127.0.0.1:*/swe/*",), min_idle_s=0, prefetch_window_s=0.1),
            disk=DiskSettings(high=0.0, low=0.0, reserve_bytes=0, interval_s=3600),
        )
        async with lab.router(settings) as environments:
            for name in names.values():
                assert environments.prefetch(name)
            await until(environments, lambda: environments.status().images_ours == 2)
            box = await lab.call(lab.agent_runs, program, image=names["b"])
            environments.request(program)
            await owns(environments, program, 1)
            facts = [await lab.engine.image(name, layers=True) for name in names.values()]
            layers = {name: f.layers for name, f in zip(names.values(), facts, strict=True) if f}
            assert exclusive_bytes(layers, [names["a"]]) == 3 * MIB
            before = small_engine.used_bytes()
            await until(environments, lambda: len(environments.evictable()) == 2)
            await environments.disk.look()
            await until(environments, lambda: environments.status().images == 1)
            freed = before - small_engine.used_bytes()
            # Beside the file: its layer's folders, of a block each.
            assert 3 * MIB <= freed <= 3 * MIB + 64 * 1024
            assert (await lab.call(box.exec_run, ["ls", "/opt"])).exit_code == 0
            environments.released(program)
            await owns(environments, program, 0)
            await until(environments, lambda: len(environments.evictable()) == 1)
            await environments.disk.look()
            await until(environments, lambda: environments.status().images == 0)
            assert before - small_engine.used_bytes() >= 9 * MIB
    client.close()


async def test_a_full_disk_recovers_without_help(
    small_engine: PrivateEngine, images: dict[str, Recipe], run: str, tmp_path: Path
) -> None:
    client = docker.DockerClient(base_url=small_engine.host, timeout=60)
    list(client.api.load_image(archive(list(images.values()))))
    with Lab(small_engine.host, client, images, run, tmp_path) as lab:
        program = lab.program(1)
        settings = lab.settings(
            disk=DiskSettings(high=0.9, low=0.8, reserve_bytes=10 * MIB, interval_s=0.1)
        )
        async with lab.router(settings) as environments:
            environments.request(program)
            box = await lab.call(lab.agent_runs, program)
            await owns(environments, program, 1)
            await lab.call(box.exec_run, ["dd", "if=/dev/zero", "of=/tmp/fill", "bs=65536"])
            room = Room(*_usage(small_engine.data))
            assert room.free == 0
            await until(environments, lambda: environments.status().disk_pressed)
            environments.released(program)
            await owns(environments, program, 0)
            await until(environments, lambda: not environments.status().disk_pressed)
            await lab.call(lab.agent_runs, program, number="again")
            environments.request(program)
            await owns(environments, program, 1)
            environments.released(program)
            await owns(environments, program, 0)
    client.close()


def _usage(path: Path) -> tuple[int, int]:
    total, _, free = shutil.disk_usage(path)
    return total, free
