"""Values to items and back, with serializers of every kind."""

from __future__ import annotations

import pickle
import zlib
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import DeltaSaver
from deltastore.conversion.convert import codec_of
from deltastore.core.codec import MSGPACK, SNAPSHOT, WRAPPED, Codec, EncodedValue, ValueKind
from deltastore.core.digests import digest
from deltastore.errors import UnreadableValueError, UnserializableValueError
from deltastore.langgraph.serializer import LoadedTypesSerializer
from tests.support.exact import exact
from tests.support.puts import Puts


class Reversing:
    """A cipher that anyone can break."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reverse", bytes(255 - byte for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "reverse"
        return bytes(255 - byte for byte in ciphertext)


class Pickling:
    """A serializer of another kind; its name is not one of the known ones."""

    name = "my pickle"

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return self.name, pickle.dumps(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        assert data[0] == self.name
        return pickle.loads(data[1])


class KnownPickling(Pickling):
    name = "pickle"


class FalseMsgpack(Pickling):
    """Says "msgpack" of what is none."""

    name = "msgpack"


class Compressing(JsonPlusSerializer):
    """Built on the stock serializer, and calls what it writes by the same name."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return kind, zlib.compress(data)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed((data[0], zlib.decompress(data[1])))


class OwnEncryption(EncryptedSerializer):
    """Encrypts in a way of its own, so it cannot be taken apart."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return f"{kind}+mine", data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed((data[0].removesuffix("+mine"), data[1]))


SERIALIZERS: dict[str, Any] = {
    "default": LoadedTypesSerializer(),
    "stock": JsonPlusSerializer(),
    "with pickle": JsonPlusSerializer(pickle_fallback=True),
    "encrypted": EncryptedSerializer(Reversing(), JsonPlusSerializer()),
    "encrypted pickle": EncryptedSerializer(Reversing(), Pickling()),
    "own encryption": OwnEncryption(Reversing(), JsonPlusSerializer()),
    "compressing": Compressing(),
    "pickle": Pickling(),
    "known pickle": KnownPickling(),
    "false msgpack": FalseMsgpack(),
}
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.binary(max_size=6),
    st.binary(max_size=6).map(bytearray),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.integers(0, 5), inner, max_size=2),
        st.sets(st.integers(0, 9), max_size=3),
        st.builds(OrderedDict, st.dictionaries(st.sampled_from("ab"), inner)),
        st.builds(HumanMessage, st.text(st.characters(codec="utf-8"), max_size=3)),
        st.builds(_DeltaSnapshot, inner),
    ),
    max_leaves=8,
)


def serializer_of(serde: Any) -> Any:
    return serde.serde if type(serde) is EncryptedSerializer else serde


@pytest.mark.parametrize("name", SERIALIZERS)
@given(value=values)
def test_a_value_comes_back_as_the_serializer_alone_would_give_it(name: str, value: Any):
    serde = SERIALIZERS[name]
    codec, _ = codec_of(serde)
    try:
        encoded = codec.encode(value, "a")
    except UnserializableValueError:
        with pytest.raises(Exception):  # noqa: B017 - whatever the serializer raises
            serializer_of(serde).dumps_typed(value)
        return
    assert encoded.digests == [digest(item) for item in encoded.items]
    alone = serializer_of(serde).loads_typed(serializer_of(serde).dumps_typed(value))
    if holds_bytearray(value) and type(value) is _DeltaSnapshot:
        return  # more exact than the stock serializer, which makes bytes of it
    assert exact(codec.decode([("a", encoded)])[0]) == exact(alone)


def holds_bytearray(value: Any) -> bool:
    return "bytearray" in repr(exact(value))


@pytest.mark.parametrize("name", SERIALIZERS)
@given(many=st.lists(values, max_size=5))
def test_many_values_decoded_at_once_are_those_decoded_one_by_one(name: str, many: list[Any]):
    codec, _ = codec_of(SERIALIZERS[name])
    try:
        encoded = [(f"{at}", codec.encode(value, "a")) for at, value in enumerate(many)]
    except UnserializableValueError:
        return
    assert exact(codec.decode(encoded)) == exact([codec.decode([each])[0] for each in encoded])


@pytest.mark.parametrize("name", SERIALIZERS)
def test_a_saver_works_with_the_serializer(name: str):
    saver = DeltaSaver.in_memory(serde=SERIALIZERS[name], snapshot_frequency=3)
    puts = Puts(saver)
    head = None
    value: list[Any] = []
    for number in range(8):
        value = [*value, {"n": number, "text": "x" * 300}, bytearray(b"b")]
        head = puts.put(head, {"a": value, "b": {"k": number}, "c": number}, metadata={"user": "ann", "tags": ["t"]})
        puts.write(head, [("a", value[-2:])])
    saver._bridge.engine.cache._threads.clear()
    assert puts.values(head)["a"][::2] == value[::2]
    assert puts.found(head).metadata["tags"] == ["t"]  # type: ignore[typeddict-item]
    assert len(list(saver.list(None, filter={"tags": ["t"], "step": 3}))) == 1


def plain_codec() -> Codec:
    return codec_of(JsonPlusSerializer())[0]


def test_lists_and_dicts_are_taken_apart_and_nothing_else():
    codec = plain_codec()
    for value, kind, count, keys in (
        ([1, "a"], ValueKind.LIST, 2, None),
        ([], ValueKind.LIST, 0, None),
        ({"k": 1, "l": [2]}, ValueKind.DICT, 2, ["k", "l"]),
        ({}, ValueKind.DICT, 0, []),
        ("tuple", ValueKind.OPAQUE, 1, None),
        ({1: 2}, ValueKind.OPAQUE, 1, None),
        (frozenset({1}), ValueKind.OPAQUE, 1, None),
        (None, ValueKind.OPAQUE, 1, None),
        (_DeltaSnapshot([1]), ValueKind.LIST | SNAPSHOT, 1, None),
        (_DeltaSnapshot({"a": 1}), ValueKind.DICT | SNAPSHOT, 1, ["a"]),
        (_DeltaSnapshot(5), ValueKind.OPAQUE | SNAPSHOT, 1, None),
        (_DeltaSnapshot(_DeltaSnapshot([1])), ValueKind.OPAQUE, 1, None),
    ):
        encoded = codec.encode(value, "a")
        assert (encoded.kind, len(encoded.items), encoded.keys) == (kind, count, keys)
        assert exact(codec.decode([("a", encoded)])[0]) == exact(value)


def test_an_element_and_the_same_value_alone_are_one_item():
    codec = plain_codec()
    for value in ("text", 5, 1.5, AIMessage("a", id="1"), (1, 2)):
        [element] = codec.encode([value], "a").items
        assert element[0] == MSGPACK
        assert codec.encode({"k": value}, "a").items == [element]
        assert codec.encode_item(value, "a") == element
    [wrapped] = plain_pickle().encode([object], "a").items
    assert wrapped[0] & WRAPPED


def plain_pickle() -> Codec:
    return codec_of(Pickling())[0]


def test_an_element_that_needs_pickle_does_not_make_the_others_do():
    codec = codec_of(JsonPlusSerializer(pickle_fallback=True))[0]
    value = [1, {"k": 2**80}, "text"]
    encoded = codec.encode(value, "a")
    assert [item[0] & ~WRAPPED for item in encoded.items] == [0, 5, 0]
    assert codec.decode([("a", encoded)]) == [value]


def test_values_come_back_in_order_from_several_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("deltastore.core.codec.RUN_ITEMS", 3)
    codec = codec_of(JsonPlusSerializer(pickle_fallback=True))[0]
    value = [2**80 if number % 4 == 1 else number for number in range(11)]
    assert codec.decode([("a", codec.encode(value, "a"))]) == [value]


def test_a_value_that_cannot_be_read_is_named():
    codec = plain_codec()
    fine = codec.encode([1, 2], "a")
    for item in (b"\x00\xc1", b"\x60data", b"\x05pickle", b"\x7f\x03odddata", b"\x00", b"\x00\xa5cut"):
        with pytest.raises(UnreadableValueError, match="channel 'b' cannot be read"):
            codec.decode([("channel 'a'", fine), ("channel 'b'", EncodedValue(ValueKind.LIST, [item])), ("c", fine)])


def test_items_that_merge_into_each_other_are_noticed():
    """Two halves of one value must not be taken for others."""
    codec = plain_codec()
    with pytest.raises(UnreadableValueError):
        codec.decode([("a", EncodedValue(ValueKind.LIST, [b"\x00\xa5he", b"\x00llo", b"\x00\x01"]))])
    with pytest.raises(UnreadableValueError, match="2 items decoded to 4 tags and values"):
        codec.decode([("a", EncodedValue(ValueKind.LIST, [b"\x00\xa2h", b"\x00\x07\x07"]))])


def test_a_key_with_a_lone_surrogate_is_refused():
    for codec in (plain_codec(), plain_pickle()):
        with pytest.raises(UnserializableValueError, match="surrogate"):
            codec.encode({"a\ud800": 1}, "a")
