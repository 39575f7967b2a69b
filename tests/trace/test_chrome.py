"""A Trace as a file: what Perfetto needs of it, reading it back, and files that are not one."""

from __future__ import annotations

import gzip
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlviz.schedules import action
from dlviz.trace import Trace, TraceError, chrome

PICOSECOND = 1e-12


def sample() -> Trace:
    """Two ranks, two lanes, a message, memory, a watched buffer."""
    spans = [
        dict(rank=0, lane="compute", kind="forward", name="fc1", start=0.001, end=0.004, step=2),
        dict(rank=0, lane="compute", kind="send", start=0.004, end=0.005, peer=1, flow=0),
        dict(rank=1, lane="compute", kind="recv", start=0.0, end=0.0065, peer=0, flow=0),
        dict(rank=1, lane="comm", kind="phase", name="phase", start=0.0, end=0.01),
        dict(rank=1, lane="comm", kind="collective", start=0.0, end=0.01, depth=1, nbytes=64),
    ]
    for span in spans:
        span["wall_start"], span["wall_end"] = (round(span[t] + 1e-5, 9) for t in ("start", "end"))
    spans[0] |= {"where": "lab.py:12", "fields": {"loss": 0.25, "shape": [2, 3], "bad": math.nan}}
    return Trace(
        spans,
        messages=[
            dict(
                src=0, dst=1, nbytes=64, sent=0.005, arrived=0.006, received=0.0065, tag=0, op="sum"
            )
        ],
        memory=[
            dict(rank=0, time=0.001, what="activations", nbytes=4096),
            dict(rank=0, time=0.004, what="activations", nbytes=0),
        ],
        buffers=[
            dict(rank=1, name="grad", time=0.0065, array=np.array([1, np.nan, np.inf, -np.inf])),
            dict(rank=1, name="grad", time=0.0065, index=1, array=np.array([1, -2], np.float32)),
        ],
        meta={"clock": "paced", "lateness": {"worst": 1e-3, "median": 2e-5}, "sizes": [1, 2]},
    )


def events(path: Path) -> list[dict]:
    text = gzip.open(path, "rt").read() if path.suffix == ".gz" else path.read_text()
    return json.loads(text)["traceEvents"]


def assert_same(a: Trace, b: Trace, tolerance: float = 0.0) -> None:
    """Every column, buffer and meta entry of `a` in `b`, times within `tolerance` seconds."""
    for one, other in ((a.spans, b.spans), (a.messages, b.messages), (a.memory, b.memory)):
        assert one.names == other.names
        for name in one.names:
            if one[name].dtype == np.float64:
                np.testing.assert_allclose(one[name], other[name], rtol=0, atol=tolerance)
            else:
                assert one[name].dtype == other[name].dtype
                assert repr(one[name].tolist()) == repr(other[name].tolist()), name
    assert a.meta == b.meta
    assert len(a.buffers) == len(b.buffers)
    for one, other in zip(a.buffers, b.buffers, strict=True):
        assert one["array"].dtype == other["array"].dtype
        np.testing.assert_array_equal(one["array"], other["array"])
        rest = [{k: v for k, v in buffer.items() if k != "array"} for buffer in (one, other)]
        assert repr(rest[0]) == repr(rest[1])


# ---------------------------------------------------------------- what Perfetto reads


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_saved_trace_comes_back_equal(tmp_path, name):
    path = sample().save(tmp_path / name)
    assert path == tmp_path / name
    assert_same(sample(), Trace.load(path))
    assert_same(sample(), Trace.load(str(path)))


def test_a_file_of_before_calls_the_operation_sum_add_and_is_read_with_its_name_now(tmp_path):
    path = tmp_path / "trace.json"
    sample().save(path)
    text = path.read_text()
    assert text.count('"op":["sum"]') == 1
    path.write_text(text.replace('"op":["sum"]', '"op":["add"]'))
    assert Trace.load(path).messages.op.tolist() == ["sum"]


def test_a_gz_file_is_gzip_and_the_same_trace_gives_the_same_bytes(tmp_path):
    one = sample().save(tmp_path / "one.json.gz").read_bytes()
    assert one[:2] == b"\x1f\x8b"
    assert one[4:8] == bytes(4)  # no time of writing
    assert gzip.decompress(one) == sample().save(tmp_path / "one.json").read_bytes()
    assert sample().save(tmp_path / "two.json.gz").read_bytes() == one


def test_spans_are_complete_events_in_microseconds(tmp_path):
    found = [event for event in events(sample().save(tmp_path / "t.json")) if event["ph"] == "X"]
    assert len(found) == 5
    first = found[0]
    assert (first["pid"], first["ts"], first["dur"]) == (0, 1000.0, 3000.0)
    assert (first["name"], first["cat"]) == ("fc1", "forward")
    assert first["args"]["step"] == 2
    assert first["args"]["where"] == "lab.py:12"
    assert first["args"]["wall_start"] == 0.00101
    assert "stage" not in first["args"]
    assert [event["name"] for event in found] == ["fc1", "send", "recv", "phase", "collective"]


def test_the_letters_of_actions_are_the_schedules():
    """The trace imports no other layer, so it has them once more."""
    assert chrome.CODES == action.CODES


def test_processes_and_threads_have_names_and_an_order(tmp_path):
    found = events(sample().save(tmp_path / "t.json"))
    labels = {(e["name"], e["pid"], e["tid"]): e["args"] for e in found if e["ph"] == "M"}
    assert labels["process_name", 0, 0] == {"name": "rank 0"}
    assert labels["process_name", 1, 0] == {"name": "rank 1"}
    assert labels["process_sort_index", 1, 0] == {"sort_index": 1}
    used = {(e["pid"], e["tid"]) for e in found if e["ph"] == "X"}
    assert len(used) == 3
    for pid, tid in used:
        assert tid > 0  # Perfetto reserves thread 0 for the idle task
        assert labels["thread_name", pid, tid]["name"] in ("compute", "comm")
        assert labels["thread_sort_index", pid, tid] == {"sort_index": tid}


def test_memory_is_a_counter_for_each_rank(tmp_path):
    found = [event for event in events(sample().save(tmp_path / "t.json")) if event["ph"] == "C"]
    assert [(e["pid"], e["ts"], e["args"]) for e in found] == [
        (0, 1000.0, {"activations": 4096}),
        (0, 4000.0, {"activations": 0}),
    ]
    assert {event["name"] for event in found} == {"memory"}


def assert_bound(found: list[dict], expected: int) -> None:
    """Every arrow starts and ends strictly inside a slice of its thread, in whole nanoseconds."""
    slices = [e for e in found if e["ph"] == "X"]
    starts = {e["id"]: e for e in found if e["ph"] == "s"}
    ends = {e["id"]: e for e in found if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == expected
    for event in (*starts.values(), *ends.values()):
        at = math.floor(event["ts"] * 1000)
        around = [
            s
            for s in slices
            if (s["pid"], s["tid"]) == (event["pid"], event["tid"])
            and s["args"].get("flow") == event["id"]
            and math.floor(s["ts"] * 1000) <= at
            and at < math.floor(s["ts"] * 1000) + max(math.floor(s["dur"] * 1000), 1)
        ]
        assert around, event
    for number, event in ends.items():
        assert event["bp"] == "e"
        assert (event["name"], event["cat"]) == (starts[number]["name"], starts[number]["cat"])


def test_an_arrow_is_bound_to_the_spans_that_sent_and_received(tmp_path):
    found = events(sample().save(tmp_path / "t.json"))
    assert_bound(found, expected=1)
    (start,) = [e for e in found if e["ph"] == "s"]
    (end,) = [e for e in found if e["ph"] == "f"]
    assert (start["pid"], end["pid"]) == (0, 1)
    assert 4000 <= start["ts"] < 5000  # in the send, though `sent` is its end
    assert 6000 < end["ts"] < 6500


def test_arrows_of_spans_of_any_length_are_bound(tmp_path):
    random = np.random.default_rng(1)
    spans, messages, now = [], [], 0
    for number in range(200):
        now += 10**6
        length = int(random.choice([0, 1, 2, 3, 5, 1000, 10**5]))
        start, end = now / 1e9, (now + length) / 1e9
        sent = start + random.uniform(-1, 2) * (end - start)
        received = max(sent, end)
        spans += [
            dict(rank=0, lane="a", kind="send", start=start, end=end, flow=number, peer=1),
            dict(rank=1, lane="a", kind="wait", start=start, end=end, flow=number, peer=0),
        ]
        messages.append(dict(src=0, dst=1, sent=sent, received=received))
    assert_bound(events(Trace(spans, messages).save(tmp_path / "t.json")), expected=200)


def test_an_arrow_ends_at_the_last_span_that_waited_for_its_message(tmp_path):
    spans = [
        dict(rank=1, lane="a", kind="recv", name="post", start=0.0, end=0.1, flow=0),
        dict(rank=0, lane="a", kind="send", name="first", start=0.0, end=0.5, flow=0),
        dict(rank=0, lane="a", kind="wait", name="for the receiver", start=0.5, end=1.0, flow=0),
        dict(rank=1, lane="a", kind="wait", name="landed", start=0.2, end=1.0, flow=0),
    ]
    found = events(
        Trace(spans, [dict(src=0, dst=1, sent=0.5, received=1.0)]).save(tmp_path / "t.json")
    )
    (start,) = [e for e in found if e["ph"] == "s"]
    (end,) = [e for e in found if e["ph"] == "f"]
    assert start["ts"] < 500_000
    assert end["ts"] > 900_000


def test_a_message_without_spans_has_no_arrow_and_stays(tmp_path):
    trace = Trace(messages=[dict(src=0, dst=1, sent=0.0, received=1.0)])
    path = trace.save(tmp_path / "t.json")
    assert not [e for e in events(path) if e["ph"] in "sf"]
    assert_same(trace, Trace.load(path))


def test_a_message_never_received_stays(tmp_path):
    trace = Trace(
        [dict(rank=0, lane="a", kind="send", start=0, end=1, flow=0)],
        [dict(src=0, dst=1, sent=0.0, received=None)],
        meta={"outcome": "unreceived"},
    )
    path = trace.save(tmp_path / "t.json")
    assert json.loads(path.read_text())["dlviz"]["messages"]["received"] == [None]
    assert_same(trace, Trace.load(path))


def test_a_failure_comes_back_with_its_spans_that_never_ended(tmp_path):
    wait = dict(rank=0, lane="a", op="recv", peer=None, since=0.25)
    failure = {"message": "Rank 1 exited with code 3.", "cycle": [], "waits": [wait]}
    trace = Trace(
        [dict(rank=0, lane="a", kind="recv", start=0, end=1, fields={"unfinished": True})],
        meta={"outcome": "failed", "ranks": 2, "failure": failure},
    )
    back = Trace.load(trace.save(tmp_path / "t.json"))
    assert_same(trace, back)
    assert back.meta["failure"] == failure and back.spans.fields[0] == {"unfinished": True}


def test_wall_times_are_not_written_twice(tmp_path):
    spans = [dict(rank=0, lane="a", kind="forward", start=0, end=1, wall_start=0, wall_end=1)]
    path = Trace(spans).save(tmp_path / "t.json")
    assert "wall_start" not in path.read_text()
    assert_same(Trace(spans), Trace.load(path))


def test_times_are_stored_to_the_picosecond_and_saving_again_changes_nothing(tmp_path):
    times = np.cumsum(np.random.default_rng(2).exponential(1e-3, 1000))
    spans = {
        "rank": [0] * 999,
        "lane": ["a"] * 999,
        "kind": ["forward"] * 999,
        "start": times[:-1],
        "end": times[1:],
        "wall_start": times[:-1] * 1.5,
        "wall_end": times[1:] * 1.5,
    }
    trace = Trace(spans)
    once = Trace.load(trace.save(tmp_path / "once.json"))
    assert_same(trace, once, tolerance=PICOSECOND)
    again = Trace.load(once.save(tmp_path / "again.json"))
    assert_same(once, again)
    assert (tmp_path / "once.json").read_bytes() == (tmp_path / "again.json").read_bytes()


def test_an_empty_trace_comes_back(tmp_path):
    for trace in (Trace(), Trace(meta={"ranks": 3, "clock": "wall"})):
        assert_same(trace, Trace.load(trace.save(tmp_path / "t.json")))


def test_only_a_part_of_a_trace_comes_back(tmp_path):
    part = sample().only(rank=1)
    assert_same(part, Trace.load(part.save(tmp_path / "t.json")))


def test_what_json_cannot_hold_is_written_as_text(tmp_path):
    where = Path("lab.py")
    trace = Trace(
        [dict(rank=0, lane="a", start=0, end=1, fields={"path": where, 3: np.float32(0.5)})],
        meta={"array": np.arange(2), "pair": (1, 2)},
    )
    back = Trace.load(trace.save(tmp_path / "t.json"))
    assert back.spans.fields[0] == {"path": "lab.py", "3": 0.5}
    assert back.meta["array"] == [0, 1]
    assert back.meta["pair"] == [1, 2]


# ---------------------------------------------------------------- any trace

names = st.one_of(
    st.sampled_from(["", "<b>&amp;</b>", "name", '"\\\n\x00', "損失 ∂L/∂w 🚂", "x" * 500, "NaN"]),
    st.text(max_size=20),
)
texts = names.filter(lambda name: name != "NaN")  # in fields and meta it stands for the number
numbers = st.integers(-1, 2**62)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
moments = st.sampled_from([-(10**9), 0]) | st.integers(-(10**9), 10**12)  # nanoseconds


@st.composite
def traces(draw) -> Trace:
    spans = []
    messages = [
        {
            "src": draw(st.integers(0, 3)),
            "dst": draw(st.integers(0, 3)),
            "sent": sent / 1e9,
            "received": draw(st.sampled_from([None, (sent + 5) / 1e9])),
            "wall_sent": draw(st.sampled_from([None, 0.25])),
            **{key: draw(numbers) for key in ("nbytes", "offset", "count", "tag", "step")},
            **{key: draw(names) for key in ("op", "group")},
        }
        for sent in draw(st.lists(moments, max_size=3))
    ]
    for rank, lane in draw(st.lists(st.tuples(st.integers(0, 3), names), max_size=3, unique=True)):
        cuts = sorted(draw(st.lists(moments, min_size=2, max_size=6)))
        nested = [(cuts[0], cuts[-1]), *zip(cuts, cuts[1:], strict=False)]
        wall = draw(st.sampled_from([None, 0, 7]))
        for depth, (start, end) in zip([0] + [1] * len(cuts), nested, strict=False):
            spans.append(
                {
                    "rank": rank,
                    "lane": lane,
                    "start": start / 1e9,
                    "end": end / 1e9,
                    "wall_start": None if wall is None else (start + wall) / 1e9,
                    "wall_end": None if wall is None else (end + wall) / 1e9,
                    "depth": depth,
                    "peer": draw(st.integers(-1, 3)),
                    "flow": draw(st.integers(-1, len(messages) - 1)),
                    "fields": draw(st.none() | st.dictionaries(texts, values, max_size=3)),
                    **{key: draw(names) for key in ("kind", "name", "group", "where")},
                    **{
                        key: draw(numbers)
                        for key in ("step", "stage", "microbatch", "bucket", "sequence", "nbytes")
                    },
                }
            )
    memory = [
        {"rank": draw(st.integers(0, 3)), "time": time / 1e9, "what": draw(names), "nbytes": size}
        for time, size in draw(st.lists(st.tuples(moments, numbers), max_size=3))
    ]
    types = st.sampled_from(["float16", "float32", "float64", "int8", "int64", "uint8", "bool"])
    buffers = [
        {
            "rank": draw(st.integers(0, 3)),
            "name": draw(names),
            "array": np.array(array).astype(dtype),
        }
        for array, dtype in draw(
            st.lists(st.tuples(st.lists(st.integers(0, 100), max_size=4), types), max_size=2)
        )
    ]
    buffers += [
        {"rank": 0, "array": np.array(array)}
        for array in draw(st.lists(st.lists(st.floats(), min_size=1, max_size=4), max_size=1))
    ]
    meta = {"ranks": 4, "outcome": "failed", "note": draw(texts), "loss": [math.inf, -math.inf]}
    return Trace(spans, messages, memory, buffers, meta)


def assert_comes_back(folder, trace):
    for name in ("any.json", "any.json.gz"):
        back = Trace.load(trace.save(folder / name))
        assert_same(trace, back)
        strict = json.loads(chrome.encode(back), parse_constant=pytest.fail)
        assert strict["dlviz"]["format"] == chrome.FORMAT


@settings(max_examples=20, deadline=None)
@given(traces())
def test_any_valid_trace_comes_back_equal(tmp_path_factory, trace):
    assert_comes_back(tmp_path_factory.getbasetemp(), trace)


@pytest.mark.sweep
@settings(max_examples=300, deadline=None)
@given(traces())
def test_any_of_many_valid_traces_comes_back_equal(tmp_path_factory, trace):
    assert_comes_back(tmp_path_factory.getbasetemp(), trace)


# ---------------------------------------------------------------- files that are no trace


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        Trace.load(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path} cannot be read as a trace: ")
    assert "\n" not in sentence
    assert len(sentence) < 400 + len(str(path))
    return sentence


class Bomb:
    def __reduce__(self):
        return open, ("bomb", "w")


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_refused_and_runs_nothing(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    for name, data in (
        ("p.json", pickle.dumps(Bomb(), protocol)),
        ("p.json.gz", gzip.compress(pickle.dumps(Bomb(), protocol))),
    ):
        (tmp_path / name).write_bytes(data)
        assert (
            "it is neither JSON nor gzip" in (text := refusal(tmp_path / name))
            or "not JSON" in text
        )
    assert not (tmp_path / "bomb").exists()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(tmp_path, share):
    plain = sample().save(tmp_path / "t.json").read_bytes()
    packed = sample().save(tmp_path / "t.json.gz").read_bytes()
    (tmp_path / "short.json").write_bytes(plain[: int(share * len(plain))])
    (tmp_path / "short.json.gz").write_bytes(packed[: int(share * len(packed))])
    assert "it is cut short" in refusal(tmp_path / "short.json") or share == 0
    assert "cut short" in refusal(tmp_path / "short.json.gz") or share < 0.02


def test_every_file_that_is_cut_short_is_refused(tmp_path):
    trace = Trace([dict(rank=0, lane="a", kind="forward", start=0, end=1e-3)])
    plain = trace.save(tmp_path / "t.json").read_bytes()
    packed = trace.save(tmp_path / "t.json.gz").read_bytes()
    for whole in (plain, packed):
        for length in range(len(whole)):
            with pytest.raises(TraceError):
                chrome.decode(whole[:length])


def deep(levels: int) -> str:
    document = json.loads(chrome.encode(Trace()))
    document["dlviz"]["meta"]["deep"] = "here"
    return json.dumps(document).replace('"here"', "[" * levels + "]" * levels)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "it is empty"),
        ("hello", "it is not JSON"),
        ("{'traceEvents': []}", "it is not JSON"),
        ("[]", "it has no 'dlviz' part, so dlviz did not write it"),
        ("3", "it has no 'dlviz' part"),
        ('{"traceEvents": []}', "it has no 'dlviz' part"),
        ('{"traceEvents": [], "dlviz": []}', "it has no 'dlviz' part"),
        ('{"traceEvents": [], "dlviz": {}}', "its format is None, and this dlviz reads 2"),
        ('{"traceEvents": [], "dlviz": {"format": 9}}', "its format is 9"),
        ('{"traceEvents": [], "dlviz": {"format": 2}}', "an entry of it is not as dlviz writes it"),
        ('{"a": NaN}', "it holds a bare NaN"),
        ('{"a": -Infinity}', "it holds a bare -Infinity"),
        ("[" * 100_000, "nested too deeply"),
        (deep(700), "nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", "holds a number of too many digits"),
        ("\xff\xfe", "it is not JSON"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, content, sentence):
    (tmp_path / "t.json").write_text(content, encoding="utf-8")
    assert sentence in refusal(tmp_path / "t.json")


def test_damaged_gzip_is_refused(tmp_path):
    packed = bytearray(sample().save(tmp_path / "t.json.gz").read_bytes())
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "t.json.gz").write_bytes(packed)
    assert "its gzip data is cut short or damaged" in refusal(tmp_path / "t.json.gz")
    (tmp_path / "t.json.gz").write_bytes(b"\x1f\x8bnonsense")
    assert "cut short or damaged" in refusal(tmp_path / "t.json.gz")


def with_change(tmp_path: Path, change) -> Path:
    document = json.loads(sample().save(tmp_path / "t.json").read_text())
    change(document)
    (tmp_path / "t.json").write_text(json.dumps(document))
    return tmp_path / "t.json"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d["traceEvents"][-1].update(dur=1e6, ph="X"), "an entry of it is not"),
        (lambda d: slices(d)[1].update(ts=2000.0, dur=3000.0), "overlap in part"),
        (lambda d: slices(d)[1].update(dur=-1.0), "ends before it starts"),
        (lambda d: slices(d)[1].update(ts="soon"), "an entry of it is not"),
        (lambda d: slices(d)[1].update(ts=None), "has start nan"),
        (lambda d: slices(d)[1].update(pid=-3), "an entry of it is not"),
        (lambda d: slices(d)[1].update(pid=1.5), "an entry of it is not"),
        (lambda d: slices(d)[1].update(args=[]), "an entry of it is not"),
        (lambda d: slices(d)[1]["args"].update(step=1.5), "the column step holds whole numbers"),
        (lambda d: slices(d)[1]["args"].update(step=10**40), "a number beyond 64 bits"),
        (lambda d: slices(d)[1]["args"].update(flow=7), "span 1 has flow 7"),
        (lambda d: slices(d)[1]["args"].update(fields="x"), "the column fields holds dicts"),
        (lambda d: d.update(traceEvents="none"), "an entry of it is not"),
        (lambda d: d.update(traceEvents=[3]), "an entry of it is not"),
        (lambda d: d["dlviz"].update(meta=None), "an entry of it is not"),
        (lambda d: d["dlviz"]["meta"].update(clock="x"), "meta['clock'] is 'x'"),
        (lambda d: d["dlviz"]["meta"].update(ranks="4"), "meta['ranks'] is '4'"),
        (lambda d: d["dlviz"]["messages"].update(src=[]), "one length"),
        (lambda d: d["dlviz"]["messages"].update(spin=[1]), "messages have no column 'spin'"),
        (lambda d: d["dlviz"]["messages"].update(received=[None]), "was never received"),
        (lambda d: d["dlviz"]["buffers"][0].update(dtype="O"), "a buffer holds numbers"),
        (lambda d: d["dlviz"]["buffers"][0].update(dtype="f4,O"), "a buffer holds numbers"),
        (lambda d: d["dlviz"]["buffers"][0].update(array=["x"]), "an entry of it is not"),
        (lambda d: d["dlviz"]["buffers"][0].update(array=[1, [2]]), "an entry of it is not"),
        (
            lambda d: d["dlviz"]["buffers"][0].update(rank="x"),
            "buffers: the column rank holds whole numbers, not 'x'",
        ),
    ],
)
def test_a_file_with_a_wrong_entry_is_refused(tmp_path, change, sentence):
    assert sentence in refusal(with_change(tmp_path, change))


def slices(document: dict) -> list[dict]:
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        Trace.load(tmp_path / "nowhere.json")


def test_saving_elsewhere_or_saving_nonsense_is_refused(tmp_path):
    with pytest.raises(ValueError, match="end its name in .json or .json.gz"):
        sample().save(tmp_path / "trace.pkl")
    with pytest.raises(TraceError, match="ends before it starts"):
        Trace([dict(rank=0, start=1, end=0)]).save(tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == []
