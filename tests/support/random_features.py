"""Features for property tests."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


def features(*, sequences: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """One feature in its JSON form, of every kind."""
    dtypes = st.sampled_from(
        ["bool", "uint8", "int32", "int64", "float16", "float32", "float64", "text", "bytes"]
    )
    dims = st.one_of(st.none(), st.integers(0, 5))
    nullable = st.booleans()
    dense = {"dtype": dtypes, "shape": st.lists(dims, max_size=3), "nullable": nullable}
    listed = {"dtype": dtypes, "nullable": nullable}
    ragged = st.tuples(st.sampled_from([None, 2]), st.sampled_from([None, 2]), st.none(), st.integers(1, 3))
    sparse = st.lists(st.integers(0, 9), min_size=1, max_size=3)
    steps = st.lists(st.integers(0, 4), max_size=2).map(lambda shape: [None, *shape])
    kinds = [
        st.fixed_dictionaries({**dense, "encoding": st.just("tensor")}),
        st.fixed_dictionaries(dense),
        st.fixed_dictionaries({**listed, "shape": ragged.map(list), "kind": st.just("ragged")}),
        st.fixed_dictionaries({**listed, "shape": sparse, "kind": st.just("sparse")}),
    ]
    if sequences:
        kinds.append(st.fixed_dictionaries({**listed, "shape": steps, "kind": st.just("sequence")}))
    return st.one_of(kinds)
