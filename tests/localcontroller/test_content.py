"""The store of content: a Model has only versions whose content is here, and keeps a good one."""

from contextlib import closing
from pathlib import Path

import pytest

from edgeai.ids import Uid
from localcontroller.content import ContentStore, ContentVersion, NoSpace
from tests.localcontroller.hooks.model_world import UID, content, key, sha256, sizes, whole_part

OTHER = key("other")
ELSEWHERE = key("small", "elsewhere")


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path, max_bytes=2000)


def publish(store: ContentStore, generation: int, data: bytes) -> ContentVersion:
    with closing(whole_part(store, key(), data)) as part:
        return part.commit(UID, generation, "model")


def generations(store: ContentStore) -> list[int]:
    return [version.generation for version in store.versions(key())]


def test_a_model_never_has_a_version_without_its_content(store: ContentStore) -> None:
    publish(store, 1, b"good")
    for size in (0, 9):
        with pytest.raises(OSError, match="gone"):
            store.switch(key(), UID, ContentVersion(2, sha256(b"no such"), size, "model"))
    assert generations(store) == [1]


def test_whole_content_and_its_record_come_together_or_not_at_all(
    store: ContentStore, tmp_path: Path
) -> None:
    (tmp_path / sha256(b"x" * 900)).mkdir()  # so the rename fails
    part = whole_part(store, key(), b"x" * 900)
    with closing(part), pytest.raises(OSError, match="directory"):
        part.commit(UID, 1, "model")
    assert generations(store) == generations(ContentStore(tmp_path, max_bytes=2000)) == []


def test_two_broken_versions_leave_the_one_that_a_worker_has_loaded(
    store: ContentStore, tmp_path: Path
) -> None:
    good = publish(store, 1, b"good")
    store.loaded(key(), good.digest)
    publish(store, 2, b"broken")
    store = ContentStore(tmp_path, max_bytes=2000)
    publish(store, 3, b"broken, too")
    assert generations(store) == [3, 1]
    assert store.read(good.digest, 0, 9) == b"good"
    store.loaded(key(), sha256(b"broken, too"))  # it was not broken
    store.loaded(key(), good.digest)  # another worker is late
    publish(store, 4, b"next")
    assert generations(store) == [4, 3]


def test_a_kill_before_new_content_has_its_name_takes_no_version_away(
    store: ContentStore, tmp_path: Path
) -> None:
    good = publish(store, 1, b"good")
    store.loaded(key(), good.digest)
    publish(store, 2, b"second")
    before = {file.name: file.read_bytes() for file in sizes(tmp_path)}
    publish(store, 3, b"third")
    (record,) = tmp_path.glob("*.model")
    before[record.name] = record.read_bytes()  # it is written before the content has its name
    (tmp_path / "killed").mkdir()
    for name, data in before.items():
        (tmp_path / "killed" / name).write_bytes(data)
    assert generations(store) == [3, 1]
    assert generations(ContentStore(tmp_path / "killed", max_bytes=2000)) == [2, 1]


def test_content_that_returns_takes_the_place_of_what_came_after_it(store: ContentStore) -> None:
    """What was taken back is nothing to fall back on."""
    store.loaded(key(), publish(store, 1, b"good").digest)
    bad = publish(store, 2, b"bad")
    store.loaded(key(), bad.digest)
    publish(store, 3, b"good")
    assert generations(store) == [3]
    assert store.size(bad.digest, "default") is None
    publish(store, 4, b"next")
    publish(store, 5, b"next")  # the same again takes nothing away
    assert generations(store) == [5, 3]


def test_room_is_made_of_versions_that_no_worker_needs(store: ContentStore) -> None:
    publish(store, 1, b"a" * 400)
    second = publish(store, 2, b"b" * 400)
    with pytest.raises(NoSpace, match="model-max-bytes"):
        store.make_room("default", 700)
    assert generations(store) == [2, 1], "nothing goes in vain"
    store.loaded(key(), sha256(b"a" * 400))
    with pytest.raises(NoSpace):
        store.make_room("default", 400)
    store.loaded(key(), second.digest)
    store.make_room("default", 400)
    assert generations(store) == [2]


def test_a_namespace_gets_a_half_and_takes_nothing_of_another_one(store: ContentStore) -> None:
    publish(store, 1, b"a" * 400)
    publish(store, 2, b"b" * 400)
    with pytest.raises(NoSpace):
        store.make_room("elsewhere", 1001)
    with closing(whole_part(store, ELSEWHERE, b"c" * 1000)) as part, pytest.raises(NoSpace):
        part.make_room(1)
    assert generations(store) == [2, 1]


def test_content_that_no_model_has_goes_at_once(store: ContentStore, tmp_path: Path) -> None:
    for generation in range(1, 4):
        publish(store, generation, content(100, seed=generation))
    assert len(sizes(tmp_path)) == 3, "two versions and a record"
    whole_part(store, OTHER, b"half").close()
    (tmp_path / ("0" * 64)).write_bytes(b"of a crash")
    store = ContentStore(tmp_path, max_bytes=2000)
    assert len(sizes(tmp_path)) == 5, "and a part with its mark"
    store.keep_only({})
    assert sizes(tmp_path) == {}


def test_content_that_returns_leaves_no_part_of_what_was_taken_back(
    store: ContentStore, tmp_path: Path
) -> None:
    publish(store, 1, b"first")
    whole_part(store, key(), b"taken back").close()
    assert {".part", ".mark"} < {file.suffix for file in tmp_path.iterdir()}
    store.switch(key(), UID, ContentVersion(3, sha256(b"first"), 5, "model"))
    assert {file.suffix for file in tmp_path.iterdir()} == {"", ".model"}


def test_a_version_that_comes_late_changes_nothing(store: ContentStore) -> None:
    with closing(whole_part(store, OTHER, b"second")) as part:
        part.commit(UID, 2, "model")
    store.switch(key(), UID, ContentVersion(2, sha256(b"second"), 6, "model"))
    part = whole_part(store, key(), b"late")
    with closing(part), pytest.raises(OSError, match="another version"):
        part.commit(UID, 1, "model")
    assert generations(store) == [2]
    store.keep_only({OTHER: UID})
    with pytest.raises(OSError, match="another version"):
        store.switch(key(), UID, ContentVersion(3, sha256(b"second"), 6, "model"))
    store.keep_only({key(): Uid("made again"), OTHER: UID})
    with pytest.raises(OSError, match="another version"):
        store.switch(key(), UID, ContentVersion(3, sha256(b"second"), 6, "model"))


def test_what_a_person_puts_into_the_directory_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.new").mkdir()
    (tmp_path / "y.model").mkdir()
    (tmp_path / "file").write_bytes(b"")
    assert ContentStore(tmp_path, max_bytes=1).versions(key()) == ()
    assert ContentStore(tmp_path / "file", max_bytes=1).versions(key()) == ()


def test_a_part_of_other_content_is_not_gone_on_with(store: ContentStore) -> None:
    whole_part(store, key(), b"first").close()
    with closing(store.open_part(key(), "x")) as same:
        assert (same.size, same.whole_size, same.digest) == (5, 5, sha256(b"first"))
    with closing(store.open_part(key(), "y")) as other:
        assert (other.size, other.whole_size, other.digest) == (0, None, sha256(b""))
