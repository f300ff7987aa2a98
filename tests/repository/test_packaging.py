"""What surrounds the code: locks, image, composition, and the wheel and the sdist used elsewhere."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

import app
from app.api.auth.loopback import ALLOWED_BY
from app.settings import refuse_unknown

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_licence_is_the_one_that_is_named() -> None:
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    assert PYPROJECT["project"]["license-files"] == ["LICENSE"]
    text = (ROOT / "LICENSE").read_bytes()
    # https://www.apache.org/licenses/LICENSE-2.0.txt
    expected = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert hashlib.sha256(text).hexdigest() == expected


# Locks


def copy_lock_inputs(folder: Path) -> Path:
    (folder / "bin").mkdir()
    for name in ("bin/lock.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "locks", folder / "locks")
    return folder


def check_locks(checkout: Path) -> tuple[int, str]:
    command = [sys.executable, str(checkout / "bin" / "lock.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, result.stderr


def test_locks_are_in_step() -> None:
    assert check_locks(ROOT) == (0, "")


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("pyproject.toml", '"fastapi>=', '"fastapi>=0,>=', "was not made from this pyproject.toml"),
        (
            "locks/serve.txt",
            "fastapi==",
            "fastapi==9",
            "has what locks/image.txt has not: fastapi==9",
        ),
        ("locks/serve.txt", "    # via", "--index-url https://example.org\n    # via", "names an index"),
        ("locks/dev.txt", "    # via", "    # via file:///x", "names an index, a host or a file"),
        ("locks/dev.txt", "absl-py==", "extra==1\nabsl-py==", "without a hash: extra==1"),
    ],
)
def test_locks_out_of_step_are_noticed(file: str, old: str, new: str, complaint: str, tmp_path: Path) -> None:
    checkout = copy_lock_inputs(tmp_path)
    text = (checkout / file).read_text(encoding="utf-8")
    assert old in text
    (checkout / file).write_text(text.replace(old, new, 1), encoding="utf-8")

    status, complaints = check_locks(checkout)

    assert status == 1
    assert complaint in complaints


# Image


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(instruction, arguments) in order, continuation lines joined, comments dropped."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (name, rest.strip())
        for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)
    ]


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    return instructions((ROOT / "Dockerfile").read_text(encoding="utf-8"))


def of(dockerfile: list[tuple[str, str]], name: str) -> list[str]:
    return [rest for instruction, rest in dockerfile if instruction == name]


def test_image_installs_the_lock_with_hashes(dockerfile: list[tuple[str, str]]) -> None:
    installs = [run for run in of(dockerfile, "RUN") if "pip install" in run]
    assert len(installs) == 2
    for lock in ("image.txt", "sbom.lock"):
        assert f"--require-hashes --only-binary :all: -r {lock}" in installs[0]
    assert "--no-deps" in installs[1]


def test_image_runs_as_a_numbered_user_that_is_not_root(dockerfile: list[tuple[str, str]]) -> None:
    # A number, so that Kubernetes can see for itself that it is not root (runAsNonRoot).
    assert of(dockerfile, "USER") == ["10001:10001"]
    assert dockerfile.index(("USER", "10001:10001")) > max(
        index for index, (name, _) in enumerate(dockerfile) if name == "RUN"
    )


def test_image_has_a_pinned_base_and_nothing_of_it_that_is_not_collected(
    dockerfile: list[tuple[str, str]],
) -> None:
    stages = ["${BASE_IMAGE} AS dependencies", "${DEPENDENCIES} AS build", "scratch"]
    assert of(dockerfile, "FROM") == stages
    assert of(dockerfile, "ARG")[1] == "DEPENDENCIES=dependencies"
    assert [copy for copy in of(dockerfile, "COPY") if copy.startswith("--from")] == ["--from=build /image /"]
    base = of(dockerfile, "ARG")[0].removeprefix("BASE_IMAGE=")
    assert re.fullmatch(r"python:3\.1[1-3](\.\d+)?-slim(-\w+)?@sha256:[0-9a-f]{64}", base)


def test_image_is_probed_without_curl(dockerfile: list[tuple[str, str]]) -> None:
    [check] = of(dockerfile, "HEALTHCHECK")
    assert "curl" not in check
    command = json.loads(check.partition("CMD ")[2])
    script = ROOT / "docker" / Path(command[-1]).name
    assert '"/livez"' in script.read_text(encoding="utf-8")


def test_the_probe_of_the_image_ignores_the_address_of_a_service() -> None:
    # Whoever may listen on the port that the service then takes: what counts is that it is asked.
    environment = {"SHARDSMITH_PORT": "tcp://10.96.12.7:8000"}
    script = ROOT / "docker" / "healthcheck.py"
    ran = subprocess.run(
        [sys.executable, "-I", script], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0 or ran.stderr.startswith("/livez: "), ran.stderr


def test_image_starts_what_signals_reach(dockerfile: list[tuple[str, str]]) -> None:
    assert of(dockerfile, "STOPSIGNAL") == ["SIGTERM"]
    [entrypoint] = of(dockerfile, "ENTRYPOINT")
    script = ROOT / "docker" / Path(json.loads(entrypoint)[-1]).name
    assert "\nos.execvp(" in script.read_text(encoding="utf-8")
    assert json.loads(of(dockerfile, "CMD")[0]) == ["/opt/shardsmith/bin/shardsmith"]
    assert of(dockerfile, "EXPOSE") == ["8000"]
    environment = of(dockerfile, "ENV")[-1]
    assert "SHARDSMITH_HOST=0.0.0.0" in environment
    assert "SHARDSMITH_LOG_FORMAT=json" in environment
    assert "SHARDSMITH_SHUTDOWN_DELAY_S=5" in environment, "for whoever has yet to see that it is unready"
    assert "ALLOW_UNAUTHENTICATED" not in environment, "who opens a container to others has to say so"


def test_image_is_labelled_with_the_version(dockerfile: list[tuple[str, str]]) -> None:
    assert f"VERSION={app.__version__}" in of(dockerfile, "ARG")
    assert 'org.opencontainers.image.version="${VERSION}"' in of(dockerfile, "LABEL")[0]


def test_image_can_copy_what_it_names(dockerfile: list[tuple[str, str]]) -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    named = [
        source.removeprefix("./")
        for copy in of(dockerfile, "COPY")
        if not copy.startswith("--from")
        for source in copy.split()[:-1]
    ]
    lock_of_the_bill = "docker/sbom.lock"  # copied before the rest of its folder
    assert sorted({*named} - {lock_of_the_bill}) == sorted(
        line[1:] for line in ignore if line.startswith("!")
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


# Composition


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    composition = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    found: dict[str, Any] = composition["services"]
    return found


def test_composition_pins_its_images(services: dict[str, Any]) -> None:
    foreign = [service["image"] for service in services.values() if "build" not in service]
    assert foreign
    assert [image for image in foreign if not re.search(r":v?[\d.]+@sha256:[0-9a-f]{64}$", image)] == []


def test_composition_uses_no_store_that_nobody_maintains(services: dict[str, Any]) -> None:
    assert [service for service in services.values() if "minio" in service.get("image", "")] == []


def test_composition_starts_in_order(services: dict[str, Any]) -> None:
    assert services["shardsmith"]["depends_on"] == {"store": {"condition": "service_healthy"}}
    port = services["store"]["environment"]["VGW_PORT"]
    health = f"http://127.0.0.1{port}{services['store']['environment']['VGW_HEALTH']}"
    assert health in services["store"]["healthcheck"]["test"]


def test_composition_keeps_its_datasets_in_the_store(services: dict[str, Any]) -> None:
    environment, store = services["shardsmith"]["environment"], services["store"]
    assert environment["SHARDSMITH_STORAGE_URL"] == "s3://shardsmith"
    assert store["volumes"] == [f"store:{store['environment']['VGW_BACKEND_ARG']}/shardsmith"]
    assert environment["AWS_ENDPOINT_URL"] == f"http://store{store['environment']['VGW_PORT']}"
    assert environment["AWS_REGION"] == store["environment"]["VGW_REGION"]
    assert environment["AWS_ACCESS_KEY_ID"] == store["environment"]["ROOT_ACCESS_KEY_ID"]
    assert environment["AWS_SECRET_ACCESS_KEY"] == store["environment"]["ROOT_SECRET_ACCESS_KEY"]


def test_composition_holds_no_secret_and_is_not_reachable_from_outside(services: dict[str, Any]) -> None:
    secrets = [
        value
        for service in services.values()
        for name, value in service.get("environment", {}).items()
        if re.search("PASSWORD|SECRET|KEY", name)
    ]
    assert secrets
    assert [secret for secret in secrets if "demo" not in secret] == []
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_composition_starts_without_tokens_for_it_is_not_reachable_from_outside(
    services: dict[str, Any],
) -> None:
    assert services["shardsmith"]["environment"]["SHARDSMITH_ALLOW_UNAUTHENTICATED"] == ALLOWED_BY


def test_composition_gives_the_service_no_rights(services: dict[str, Any]) -> None:
    service = services["shardsmith"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_composition_limits_memory_and_processors(services: dict[str, Any]) -> None:
    assert {name: (service["mem_limit"], service["cpus"]) for name, service in services.items()} == {
        "shardsmith": ("1g", 2),
        "store": ("512m", 1),
        "prometheus": ("512m", 1),
        "grafana": ("512m", 1),
    }
    # What the page on sizing says of that limit, as the comment in the file.
    page = (ROOT / "docs" / "how-to" / "sizing.md").read_text(encoding="utf-8")
    assert "| 1024 MiB | 512 MiB | 1 |" in page


def test_composition_sets_what_the_service_knows(services: dict[str, Any]) -> None:
    environment = services["shardsmith"]["environment"]
    refuse_unknown(environment)
    assert {name for name in environment if name.startswith("SHARDSMITH_")} == {
        "SHARDSMITH_STORAGE_URL",
        "SHARDSMITH_ALLOW_UNAUTHENTICATED",
        "SHARDSMITH_ALLOWED_HOSTS",
        "SHARDSMITH_METRICS_HOST",
        "SHARDSMITH_METRICS_PORT",
    }


def test_composition_watches_itself_where_asked(services: dict[str, Any]) -> None:
    watching = {name for name, service in services.items() if service.get("profiles") == ["observability"]}
    assert watching == {"prometheus", "grafana"}
    mounted = [volume for name in watching for volume in services[name]["volumes"]]
    assert [volume for volume in mounted if not (ROOT / volume.split(":")[0]).is_file()] == []
    [job] = yaml.safe_load((ROOT / "deploy/compose/prometheus.yaml").read_text("utf-8"))["scrape_configs"]
    environment = services["shardsmith"]["environment"]
    assert job["static_configs"] == [{"targets": [f"shardsmith:{environment['SHARDSMITH_METRICS_PORT']}"]}]
    assert environment["SHARDSMITH_METRICS_HOST"] == "0.0.0.0"  # noqa: S104


# Wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "app", source / "app", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    return build_wheel(source, folder)


def build_wheel(source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation"]
    built = subprocess.run(
        [*command, "--wheel-dir", folder, source], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout
    assert "absent from the" not in built.stdout, "setuptools found a folder that setup.py did not"
    [made] = folder.glob("*.whl")
    return made


def modules_and_pages(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_wheel_holds_every_module_and_page_and_nothing_else(wheel: Path) -> None:
    sources = [*(ROOT / "app").rglob("*.py"), *(ROOT / "app" / "api" / "ui").glob("*s/*.*")]
    assert modules_and_pages(wheel) == {
        *(f"shardsmith/{path.relative_to(ROOT / 'app')}" for path in sources),
        "shardsmith/py.typed",
    }


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def links(markdown: str) -> list[str]:
    return re.findall(r"\]\(([^)]*)\)", markdown)


def test_readme_of_the_wheel_has_no_link_that_needs_the_repository(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    assert metadata["Description-Content-Type"] == "text/markdown"
    readme = str(metadata.get_payload())
    assert "# Shardsmith" in readme
    assert [link for link in links(readme) if not link.startswith("https://")] == []


def test_readme_links_lead_to_the_public_repository(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text('__version__ = "1.2.3"\n', "utf-8")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndynamic = ["version", "readme"]\n[project.urls]\nSource = "https://git.example/x"\n'
        '[tool.setuptools]\npackage-dir = { "shardsmith" = "app" }\n',
        "utf-8",
    )
    (tmp_path / "README.md").write_text(
        "![Map](docs/a.svg) [Page](docs/b.md#part) [Far](https://example.org) [Here](#here)", "utf-8"
    )
    shutil.copy(ROOT / "setup.py", tmp_path)
    command = [sys.executable, "setup.py", "--quiet", "--long-description"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert shown.split() == [
        "![Map](https://git.example/x/raw/v1.2.3/docs/a.svg)",
        "[Page](https://git.example/x/blob/v1.2.3/docs/b.md#part)",
        "[Far](https://example.org)",
        "[Here](#here)",
    ]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("-m", "shardsmith"), "is not installed. Install what the command line and the service need"),
        (("-c", "import shardsmith.cli; shardsmith.cli.main()"), "pip install 'shardsmith[service]'"),
        (("-c", "import shardsmith.client"), "Install it with: pip install 'shardsmith[client]'"),
    ],
)
def test_missing_extra_is_named(wheel: Path, tmp_path: Path, command: tuple[str, ...], sentence: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    # Without site-packages.
    ended = subprocess.run(
        [sys.executable, "-S", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert sentence in ended.stderr.splitlines()[-1]
    assert ended.stderr.count("Traceback") == ("client" in command[-1])
    assert "During handling" not in ended.stderr


@pytest.mark.tools
def test_wheel_can_be_built_from_the_sdist_which_has_all_that_is_in_the_checkout(
    wheel: Path, tmp_path: Path
) -> None:
    made = [".*", "*.egg-info", "__pycache__", "node_modules", "target", "cargo", "Cargo.lock"]
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(*made, "build", "dist", "data"))
    build = "import setuptools.build_meta as backend; backend.build_sdist('made')"
    subprocess.run([sys.executable, "-c", build], cwd=checkout, capture_output=True, check=True)
    [sdist] = (checkout / "made").glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path / "sdist", filter="data")
    [source] = (tmp_path / "sdist").iterdir()

    there = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    wanted = {path.relative_to(checkout) for path in checkout.rglob("*") if path.is_file()}
    assert {path for path in wanted - there if path.parts[0] not in ("made", "shardsmith.egg-info")} == set()
    targets = [link.partition("#")[0] for link in links((source / "README.md").read_text("utf-8"))]
    assert [target for target in targets if "://" not in target and not (source / target).exists()] == []
    assert modules_and_pages(build_wheel(source, tmp_path)) == modules_and_pages(wheel)


SERVE_ONE_REQUEST = """
import asyncio, httpx
from shardsmith.main import create_app

async def ask():
    transport = httpx.ASGITransport(create_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.post("/v1/tensors/serialize", json=[1, 2])

answer = asyncio.run(ask())
print(answer.status_code, answer.content.hex())
"""


@pytest.mark.tools
def test_wheel_works_next_to_another_app_module(wheel: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "app.py").write_text("raise RuntimeError('imported the app.py of the caller')\n", "utf-8")
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    paths = {"base": str(environment), "platbase": str(environment)}
    site_packages = Path(sysconfig.get_path("purelib", "venv", paths))
    # The dependencies of this environment, without what it installs in editable form.
    (site_packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", "utf-8")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site_packages)

    result = subprocess.run(
        [python, "-c", SERVE_ONE_REQUEST],
        cwd=stranger,
        env={"SHARDSMITH_STORAGE_URL": "memory://"},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )

    assert result.returncode == 0, result.stderr
    # What TensorFlow's serialize_tensor makes of the int64 tensor [1, 2].
    tensor = "0809" + "120412020802" + "2210" + "0100000000000000" + "0200000000000000"
    assert result.stdout.split() == ["200", tensor]
