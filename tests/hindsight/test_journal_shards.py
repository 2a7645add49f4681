import random
import sys
import uuid
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.controller.objects import Objects
from tests.hindsight.slots import decided, entry
from webhook.decide.decision_record import RecordedOption
from webhook.hindsight import journal
from webhook.hindsight.journal import JournalEntry, Slot, config_map, read_slot
from webhook.model.policy.fallback_policy import Mode
from webhook.model.words import harmless, rfc3339
from webhook.settings import Settings

TEXTS = st.text(max_size=8)
NAMES = TEXTS.map(harmless)
SECONDS = st.none() | st.floats(0, 1e6).map(lambda value: round(value, 3))
OPTIONS = st.builds(
    RecordedOption,
    name=NAMES,
    queue=NAMES,
    starts_in=SECONDS,
    runs=SECONDS,
    finishes_in=SECONDS,
    passed_over=st.sampled_from(["", "smallGain"]),
)
DECISIONS = st.builds(
    lambda **fields: replace(decided(), **fields),
    policy=NAMES,
    mode=st.sampled_from(Mode),
    option=st.none() | NAMES.filter(bool),
    moves=st.integers(0, 3),
    options=st.lists(OPTIONS, max_size=2).map(tuple),
)
ENTRIES = st.builds(
    JournalEntry,
    key=st.text("abc", min_size=1, max_size=3),
    uid=TEXTS,
    namespace=TEXTS,
    name=TEXTS,
    created=st.floats(0, 2e9).map(lambda value: round(value, 3)),
    admitted=st.integers(0, 2**31),
    finished=st.integers(0, 2**31),
    queue=TEXTS,
    submitted=TEXTS,
    ran=TEXTS,
    labels=st.dictionaries(TEXTS, TEXTS, max_size=2),
    decision=st.none() | DECISIONS,
)


@given(st.lists(ENTRIES, unique_by=lambda entry: entry.key, max_size=6))
def test_what_is_written_is_read_back(entries):
    slot = Slot(number=5, entries={entry.key: entry for entry in entries}, left_out=2)

    assert read_slot(config_map(slot)) == slot


@given(st.lists(ENTRIES, unique_by=lambda entry: entry.key, max_size=6), st.data())
def test_what_two_have_seen_merges_to_the_same_in_any_order(entries, data):
    shares = [data.draw(st.lists(st.sampled_from(entries))) if entries else [] for _ in range(2)]
    nothing = Slot(number=5, entries={})

    one = nothing.merged(shares[0]).merged(shares[1])
    other = nothing.merged(shares[1]).merged(shares[0])

    assert config_map(one) == config_map(other)


def test_what_exceeds_an_hours_room_is_counted_and_left_out(monkeypatch):
    monkeypatch.setattr(journal, "MOST_ENTRIES", 3)

    found = Slot(number=5, entries={}).merged(entry(f"w-{n}") for n in range(5))

    assert (sorted(found.entries), found.left_out) == (["w-0", "w-1", "w-2"], 2)


def test_an_object_never_nears_what_etcd_takes(monkeypatch):
    monkeypatch.setattr(journal, "MOST_BYTES", 1500)
    many = {f"w-{n:03}": replace(entry(f"w-{n:03}"), finished=n) for n in range(400)}

    found = read_slot(config_map(Slot(number=5, entries=many)))

    assert found.entries
    assert len(found.entries) + found.left_out == len(many)
    assert max(each.finished for each in found.entries.values()) == len(found.entries) - 1


def decided_by_cost(number, chance):
    """Return a Job of one of 40 classes with three options, as a busy cluster's journal has it."""
    kind, run = number % 40, chance.randrange(30, 9000)
    created, waited = 1.8e9 + chance.random() * 3600, chance.randrange(10, 4000)
    terms = ("money", "electricity", "kWh", "carbonGrams")
    gpu = {
        "startsIn": chance.randrange(50, 9000),
        "finishesIn": chance.randrange(500, 20_000),
        "cost": {term: chance.uniform(0.1, 20) for term in terms},
        "passedOver": f"smallSaving: {chance.randrange(100)} % of {chance.randrange(100)}",
    }
    small = f"tooSmall: needs {11 + number % 50} GiB of device memory, a slice has 10 GiB"
    options = [
        {"name": "gpu", "queue": "gpu-lq", "runs": run // 3, **gpu},
        {"name": "mig", "queue": "mig-lq", "runs": run // 2, "rejected": small},
        {"name": "cpu", "queue": "cpu-lq", "startsIn": 0, "runs": run, "finishesIn": run},
    ]
    return JournalEntry(
        key=str(uuid.UUID(int=chance.getrandbits(128))),
        uid=str(uuid.UUID(int=chance.getrandbits(128))),
        namespace=f"team-{kind % 12}",
        name=f"train-{kind}-{chance.randrange(10**5)}",
        created=round(created, 3),
        admitted=int(created + waited),
        finished=int(created + waited + run),
        outcome=journal.SUCCEEDED,
        queue="cpu-lq",
        cluster_queue="cpu-cq",
        flavors="default",
        job_class=f"team-{kind % 12}/{kind:016x}",
        coarse=f"team-{kind % 12}/~{kind:08x}",
        submitted=f'{{"image":"train:{kind}"}}',
        ran=f'{{"image":"train-cpu:{kind}"}}',
        labels={"kueue.x-k8s.io/queue-name": "gpu-lq"},
        used=((("default", "cpu"), 8000), (("default", "memory"), 1 << 34)),
        decision=decided(
            time=rfc3339(created), option="cpu", options=options, **{"from": {"queue": "gpu-lq"}}
        ),
    )


def test_an_object_has_room_for_as_many_jobs_by_cost_as_are_kept_of_an_hour():
    chance = random.Random(1)
    jobs = [decided_by_cost(number, chance) for number in range(journal.MOST_ENTRIES)]

    found = read_slot(config_map(Slot(number=5, entries={job.key: job for job in jobs})))

    assert (len(found.entries), found.left_out) == (journal.MOST_ENTRIES, 0)


def test_damaged_objects_and_those_of_another_version_are_passed_over():
    whole = config_map(Slot(number=5, entries={"a": entry("a")}))
    other = {**whole, "data": {**whole["data"], "version": "3"}}
    torn = {**whole, "binaryData": {"entries": "AAAA"}}

    assert [read_slot(each) for each in (other, torn, {"data": 5})] == [None, None, None]


def ended(hour, number):
    finished = hour * journal.SLOT_SECONDS + number
    return replace(entry(f"w-{hour}-{number}"), finished=finished)


def holding(*entries):
    server = Objects()
    for hour in {journal.slot_of(each.finished) for each in entries}:
        mine = {e.key: e for e in entries if journal.slot_of(e.finished) == hour}
        written = config_map(Slot(number=hour, entries=mine, left_out=1))
        server.post(journal.path_of("ours"), written)
    return server


def newest(server, hour, most):
    return journal.newest(server, "ours", hour * journal.SLOT_SECONDS + 9.0, most)


def test_the_newest_entries_are_read_first_and_no_object_more_than_needed():
    kept = [ended(hour, number) for hour in (100, 101, 102) for number in (1, 2)]
    server = holding(*kept)

    found = newest(server, 102, 3)

    assert [each.key for each in found] == ["w-102-2", "w-102-1", "w-101-2"]
    assert len(server.reads) == 2


def test_savings_are_counted_of_a_day_however_long_entries_are_kept():
    server = holding(ended(100, 1))

    assert newest(server, 100 + 32, 5) == ()
    assert len(server.reads) == 32
    assert len(newest(server, 100 + 31, 5)) == 1


def test_all_that_is_ever_kept_has_a_place_of_its_own():
    longest = journal.hours_kept(journal.LONGEST_DAYS)

    assert Settings(journal_days=journal.LONGEST_DAYS).journal_days == journal.LONGEST_DAYS
    assert len({journal.name_of(1_000_000 + hour) for hour in range(longest)}) == longest


def test_an_hour_that_nobody_asks_about_is_not_unpacked(monkeypatch):
    source = config_map(Slot(number=5, entries={"a": entry("a")}))
    monkeypatch.setattr(journal, "read_entries", None)

    assert read_slot(source, oldest=6) is None


def of(namespace, key, finished, size=0):
    return replace(
        entry(key), namespace=namespace, finished=finished, ran=noise(size, key), submitted="{}"
    )


def noise(size, seed):
    """Text that does not pack."""
    return random.Random(seed).randbytes(size // 2).hex()


def test_many_entries_of_one_namespace_push_out_none_of_another(monkeypatch):
    monkeypatch.setattr(journal, "MOST_ENTRIES", 10)
    hostile = [of("hostile", f"h-{n:02}", finished=n) for n in range(30)]
    others = [of("team", f"t-{n}", finished=100 + n) for n in range(4)]

    found = Slot(number=5, entries={}).merged(hostile).merged(others)

    kept = Counter(each.namespace for each in found.entries.values())
    assert kept == {"team": 4, "hostile": 6}
    assert found.left_out == 24


def test_large_entries_at_the_start_of_an_hour_push_out_none_of_another_namespace(monkeypatch):
    monkeypatch.setattr(journal, "MOST_BYTES", 20_000)
    large = [of("hostile", f"h-{n}", finished=n, size=20_000) for n in range(6)]
    small = [of("team", f"t-{n}", finished=100 + n, size=200) for n in range(20)]
    slot = Slot(number=5, entries={}).merged([*large, *small])

    found = read_slot(config_map(slot))

    kept = Counter(each.namespace for each in found.entries.values())
    assert kept["team"] == 20
    assert 0 < kept["hostile"] < 6
    assert found.left_out == 6 - kept["hostile"]


def test_of_one_namespace_the_largest_go_first(monkeypatch):
    monkeypatch.setattr(journal, "MOST_BYTES", 20_000)
    sizes = {"a": 30_000, "b": 200, "c": 40_000, "d": 300}
    entries = {key: of("team", key, finished=1, size=size) for key, size in sizes.items()}

    found = read_slot(config_map(Slot(number=5, entries=entries)))

    assert {"b", "d"} <= found.entries.keys()
    assert "c" not in found.entries


def test_what_packs_well_takes_no_more_room_before_it_is_packed(monkeypatch):
    monkeypatch.setattr(journal, "MOST_TEXT", 50_000)
    long = {f"h-{n}": of("hostile", f"h-{n}", finished=n) for n in range(50)}
    long = {key: replace(each, ran=key * 2_000) for key, each in long.items()}
    small = {f"t-{n}": of("team", f"t-{n}", finished=100 + n, size=200) for n in range(20)}

    found = read_slot(config_map(Slot(number=5, entries={**long, **small})))

    kept = Counter(each.namespace for each in found.entries.values())
    assert kept["team"] == 20
    assert 0 < kept["hostile"] < 10
    assert len(journal.write_entries(found.entries.values())) <= 50_000


def test_only_texts_that_many_entries_have_are_shared():
    """The table of shared strings grows by what is read at once, and never shrinks."""
    written = config_map(Slot(number=5, entries={"w-own": entry("w-own")}))

    (found,) = read_slot(written).entries.values()

    copied = {name: getattr(found, name).encode().decode() for name in ("key", "uid", "name")}
    assert [name for name, text in copied.items() if sys.intern(text) is getattr(found, name)] == []
    assert sys.intern(found.namespace.encode().decode()) is found.namespace
