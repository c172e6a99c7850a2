"""A real engine, bystanders on it, and a router's environments over it.

Every test ends the same way: nothing of ours is left, and the bystanders stand as they stood.
The machine's own engine is used with unique names; what kills or fills an engine has a private one.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from containers.lab import Lab
from containers.layered_images import MIB, Recipe, archive, filler, tools
from containers.private_engine import PrivateEngine, lacking


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="session")
def run() -> str:
    """What this session's objects are called, unlike any other's."""
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def images(run: str) -> dict[str, Recipe]:
    """What bystanders and agents run."""
    config = {"Labels": {"thunder.test": run}}
    return {"base": Recipe(f"thunder-{run}/base:1", (tools(),), config)}


@pytest.fixture
def pair(run: str) -> dict[str, Recipe]:
    """Two images that share 4 MiB, and have 3 and 2 MiB of their own, new to every engine."""
    fresh = uuid.uuid4().hex
    shared = filler(f"shared-{fresh}", 4 * MIB)
    return {
        "a": Recipe(f"thunder-{run}/a:{fresh}", (tools(), shared, filler(f"a-{fresh}", 3 * MIB))),
        "b": Recipe(f"thunder-{run}/b:{fresh}", (tools(), shared, filler(f"b-{fresh}", 2 * MIB))),
    }


@pytest.fixture(scope="session")
def shared_host() -> str:
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")


@pytest.fixture(scope="session")
def shared_client(
    shared_host: str, run: str, images: dict[str, Recipe]
) -> Iterator[docker.DockerClient]:
    """The machine's own engine, with our image on it for the session."""
    try:
        client = docker.DockerClient(base_url=shared_host, timeout=60)
        client.ping()
    except DockerException as error:
        pytest.skip(f"no container engine at {shared_host}: {error}")
    list(client.api.load_image(archive(list(images.values()))))
    yield client
    for image in client.images.list(filters={"label": f"thunder.test={run}"}):
        for tag in image.tags:
            client.images.remove(tag)
    client.close()


@pytest.fixture
def lab(
    shared_host: str,
    shared_client: docker.DockerClient,
    images: dict[str, Recipe],
    run: str,
    tmp_path: Path,
) -> Iterator[Lab]:
    """The machine's own engine, for tests that do it no harm."""
    with Lab(shared_host, shared_client, images, f"{run}-{uuid.uuid4().hex[:6]}", tmp_path) as lab:
        yield lab


@pytest.fixture(scope="session")
def private_engine(run: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    """An engine to kill and stop; every test leaves it running."""
    if why := lacking():
        pytest.skip(why)
    # A socket's path has to be short.
    with PrivateEngine(Path(f"/tmp/thunder-{run}"), run) as engine:
        engine.up()
        yield engine


@pytest.fixture
def private_lab(
    private_engine: PrivateEngine, images: dict[str, Recipe], run: str, tmp_path: Path
) -> Iterator[Lab]:
    """A lab on the private engine."""
    client = docker.DockerClient(base_url=private_engine.host, timeout=60)
    list(client.api.load_image(archive(list(images.values()))))
    name = f"{run}-{uuid.uuid4().hex[:6]}"
    with Lab(private_engine.host, client, images, name, tmp_path) as lab:
        yield lab
    client.close()
