"""What JSON rows are read as, and how they are refused.

By title: groups of one form, the declared features (None: inferred) and options, with bodies and their
outcomes: the features in short and the values of each row, or code, row, feature and offset.
"""

from __future__ import annotations

from typing import Any

nan, inf = float("nan"), float("inf")

Group = tuple[str, dict[str, Any] | None, dict[str, Any], list[tuple[bytes, Any]]]

# fmt: off
CASES: dict[str, list[Group]] = {
    'numbers and words, read as what is declared': [
        ('ndjson', {'a': 'int64'}, {}, [
            (b'{"a":0}', [[0]]),
            (b'{"a":-0}', [[0]]),
            (b'{"a":9223372036854775807}', [[9223372036854775807]]),
            (b'{"a":-9223372036854775808}', [[-9223372036854775808]]),
            (b'{"a":9223372036854775808}', ('out_of_range', 0, 'a', None)),
            (b'{"a":1.0}', [[1]]),
            (b'{"a":1.5}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":1e3}', [[1000]]),
            (b'{"a":9007199254740992.0}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":"12"}', [[12]]),
            (b'{"a":"-9223372036854775808"}', [[-9223372036854775808]]),
            (b'{"a":"1x"}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":"00"}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":"99999999999999999999"}', ('out_of_range', 0, 'a', None)),
            (b'{"a":""}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":true}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":null}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[1]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"b64":"AA=="}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":[],"indices":[]}}', ('unsupported_kind', 0, 'a', None)),
            (b'{"a":1e400}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":123456789012345678901234567890}', ('out_of_range', 0, 'a', None)),
            (b'{"a":-123456789012345678901234567890}', ('out_of_range', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'uint64'}, {}, [
            (b'{"a":18446744073709551615}', [[18446744073709551615]]),
            (b'{"a":18446744073709551616}', ('out_of_range', 0, 'a', None)),
            (b'{"a":-1}', ('out_of_range', 0, 'a', None)),
            (b'{"a":"18446744073709551615"}', [[18446744073709551615]]),
            (b'{"a":-0}', [[0]]),
            (b'{"a":2.0}', [[2]]),
        ]),
        ('ndjson', {'a': 'int8'}, {}, [
            (b'{"a":127}', [[127]]),
            (b'{"a":128}', ('out_of_range', 0, 'a', None)),
            (b'{"a":-128}', [[-128]]),
            (b'{"a":-129}', ('out_of_range', 0, 'a', None)),
            (b'{"a":1e2}', [[100]]),
            (b'{"a":"-5"}', [[-5]]),
        ]),
        ('ndjson', {'a': 'uint8'}, {}, [
            (b'{"a":255}', [[255]]),
            (b'{"a":256}', ('out_of_range', 0, 'a', None)),
            (b'{"a":-1}', ('out_of_range', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'int4'}, {}, [
            (b'{"a":7}', [[7]]),
            (b'{"a":8}', ('out_of_range', 0, 'a', None)),
            (b'{"a":-8}', [[-8]]),
            (b'{"a":-9}', ('out_of_range', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'uint2'}, {}, [
            (b'{"a":3}', [[3]]),
            (b'{"a":4}', ('out_of_range', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'float32'}, {}, [
            (b'{"a":0.1}', [[0.10000000149011612]]),
            (b'{"a":-0}', [[-0.0]]),
            (b'{"a":16777216}', [[16777216.0]]),
            (b'{"a":16777217}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":1e39}', ('out_of_range', 0, 'a', None)),
            (b'{"a":-1e39}', ('out_of_range', 0, 'a', None)),
            (b'{"a":"NaN"}', [[nan]]),
            (b'{"a":"-Infinity"}', [[-inf]]),
            (b'{"a":"1"}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":true}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":1e-50}', [[0.0]]),
            (b'{"a":123456789012345678901234567890}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":3.4028235677973366e38}', ('out_of_range', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'float64'}, {}, [
            (b'{"a":0.1}', [[0.1]]),
            (b'{"a":9007199254740993}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":-9007199254740993}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":9007199254740992}', [[9007199254740992.0]]),
            (b'{"a":1180591620717411303424}', [[1.1805916207174113e+21]]),
            (b'{"a":1180591620717411303425}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":1e400}', ('out_of_range', 0, 'a', None)),
            (b'{"a":-1e400}', ('out_of_range', 0, 'a', None)),
            (b'{"a":2.2250738585072011e-308}', [[2.225073858507201e-308]]),
            (b'{"a":0.1234567890123456789012345678901234567890}', [[0.12345678901234568]]),
            (b'{"a":9007199254740993.0}', [[9007199254740992.0]]),
            (b'{"a":4.9e-324}', [[5e-324]]),
            (b'{"a":1' + b'0' * 310 + b'}', ('out_of_range', 0, 'a', None)),
            (b'{"a":18446744073709551616}', [[1.8446744073709552e+19]]),
            (b'{"a":18446744073709551615}', ('inexact_integer', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'float16'}, {}, [
            (b'{"a":65504}', [[65504.0]]),
            (b'{"a":65520}', ('out_of_range', 0, 'a', None)),
            (b'{"a":2049}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":0.1}', [[0.0999755859375]]),
        ]),
        ('ndjson', {'a': 'bfloat16'}, {}, [
            (b'{"a":257}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":256}', [[256.0]]),
            (b'{"a":1.00390626}', [[1.0078125]]),
        ]),
        ('ndjson', {'a': 'float8_e5m2'}, {}, [
            (b'{"a":1.5}', [[1.5]]),
            (b'{"a":1e9}', ('out_of_range', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'float4_e2m1fn'}, {}, [
            (b'{"a":6}', [[6.0]]),
            (b'{"a":"NaN"}', ('out_of_range', 0, 'a', None)),
            (b'{"a":7}', ('out_of_range', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'bool'}, {}, [
            (b'{"a":true}', [[True]]),
            (b'{"a":false}', [[False]]),
            (b'{"a":0}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":1}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":"true"}', ('schema_conflict', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'complex64'}, {}, [
            (b'{"a":[1,-2.5]}', [[(1-2.5j)]]),
            (b'{"a":[1]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":1}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[1,[2]]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":["NaN",0]}', [[(nan+0j)]]),
            (b'{"a":[1e39,0]}', ('out_of_range', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'text'}, {}, [
            (
             b'{"a":"\xc3\xa9\\u00e9\\ud83d\\ude00\\n\\"\\\\\\/\\b\\f\\r\\t"}',
             [[b'\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\n"\\/\x08\x0c\r\t']]),
            (b'{"a":""}', [[b'']]),
            (b'{"a":{"b64":"w6k="}}', [[b'\xc3\xa9']]),
            (b'{"a":{"b64":"/w=="}}', ('invalid_utf8', 0, 'a', None)),
            (b'{"a":{"b64":"A"}}', ('invalid_base64', 0, 'a', None)),
            (b'{"a":{"b64":1}}', ('invalid_base64', 0, 'a', None)),
            (b'{"a":{"b64":"AA==","x":1}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":1}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":null}', ('schema_conflict', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'bytes'}, {}, [
            (b'{"a":"x"}', [[b'x']]),
            (b'{"a":{"b64":""}}', [[b'']]),
            (b'{"a":{"b64":"_-8"}}', [[b'\xff\xef']]),
            (b'{"a":{"b64":"/+8="}}', [[b'\xff\xef']]),
            (b'{"a":{"b64":"_+8="}}', ('invalid_base64', 0, 'a', None)),
            (b'{"a":{"b64":"/+8=="}}', ('invalid_base64', 0, 'a', None)),
            (b'{"a":{"b64":"/+9="}}', ('invalid_base64', 0, 'a', None)),
            (b'{"a":{"b64":"/+8\\u003d"}}', [[b'\xff\xef']]),
            (b'{"a":{"values":[],"row_splits":[]}}', ('unsupported_kind', 0, 'a', None)),
            (b'{"a":{}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":["x"]}', ('schema_conflict', 0, 'a', None)),
        ]),
    ],
    'what nobody declared': [
        ('ndjson', None, {}, [
            (b'{"a":1}\n{"a":-0}', ({'a': 'int64'}, [[1], [0]])),
            (b'{"a":1}\n{"a":2.5}', ({'a': 'float64'}, [[1.0], [2.5]])),
            (b'{"a":9223372036854775808}', ('out_of_range', 0, 'a', None)),
            (b'{"a":9007199254740993}\n{"a":1.5}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":true}\n{"a":false}', ({'a': 'bool'}, [[True], [False]])),
            (b'{"a":true}\n{"a":0}', ('schema_conflict', 1, 'a', None)),
            (b'{"a":"x"}\n{"a":{"b64":"AA=="}}', ('schema_conflict', 1, 'a', None)),
            (b'{"a":{"b64":"AA=="}}\n{"a":{"b64":"/w"}}', ({'a': 'bytes'}, [[b'\x00'], [b'\xff']])),
            (b'{"a":"NaN"}\n{"a":1}', ({'a': 'float64'}, [[nan], [1.0]])),
            (b'{"a":[1.5]}\n{"a":["-Infinity",2]}', ({'a': 'float64[null]'}, [[[1.5]], [[-inf, 2.0]]])),
            (b'{"a":"NaN"}\n{"a":"Infinity"}', ({'a': 'float64'}, [[nan], [inf]])),
            (b'{"a":"NaN"}\n{"a":"nan"}', ({'a': 'text'}, [[b'NaN'], [b'nan']])),
            (b'{"a":1}\n{"a":"nan"}', ('schema_conflict', 1, 'a', None)),
            (b'{"a":true}\n{"a":"NaN"}', ('schema_conflict', 1, 'a', None)),
            (b'{"a":null}\n{"a":1}\n{}', ({'a': 'int64?'}, [[None], [1], [None]])),
            (b'{"a":null}\n{"a":null,"b":1}', ({'b': 'int64?'}, [[None], [1]])),
            (b'{}\n{}', ({}, [[], []])),
            (b'', ({}, [])),
            (b'\n \t\n', ({}, [])),
            (b'{"a":[]}', ({}, [[]])),
            (b'{"a":[]}\n{"a":[1]}', ({'a': 'int64[null]'}, [[[]], [[1]]])),
            (b'{"a":[1,2]}\n{"a":[3,4.5]}', ({'a': 'float64[2]'}, [[[1.0, 2.0]], [[3.0, 4.5]]])),
            (b'{"a":[1]}\n{"a":[2,3]}', ({'a': 'int64[null]'}, [[[1]], [[2, 3]]])),
            (b'{"a":[[1,2],[3,4]]}', ({'a': 'int64[2,2]'}, [[[[1, 2], [3, 4]]]])),
            (
             b'{"a":[[1,2]]}\n{"a":[[3,4],[5,6]]}',
             ({'a': 'int64[null,2]'}, [[[[1, 2]]], [[[3, 4], [5, 6]]]])),
            (b'{"a":[[1],[2,3]]}', ({'a': 'ragged int64[2,null]'}, [[[[1], [2, 3]]]])),
            (b'{"a":[[],[]]}', ({}, [[]])),
            (b'{"a":[[[1]],[[2],[3]]]}', ({'a': 'ragged int64[2,null,1]'}, [[[[[1]], [[2], [3]]]]])),
            (b'{"a":[1,[2]]}', ('ragged', 0, 'a', None)),
            (b'{"a":[[1],2]}', ('ragged', 0, 'a', None)),
            (b'{"a":1}\n{"a":[1]}', ('schema_conflict', 1, 'a', None)),
            (b'{"a":[1]}\n{"a":1.5}', ('schema_conflict', 1, 'a', None)),
            (b'{"a":[1,null]}', ('null_value', 0, 'a', None)),
            (b'{"a":[null,[1]]}', ('null_value', 0, 'a', None)),
            (b'{"a":[1,true]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":["x",{"b64":"AA=="}]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[1,"x"]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"x":1}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":[1],"indices":[0]}}', ('unsupported_kind', 0, 'a', None)),
            (b'{"":1}', ('invalid_feature_name', None, '', None)),
            (
             b'{"' + b'n' * 5000 + b'":1}',
             ('invalid_feature_name', None,
              'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn', None)),
            (b'{"a":1e400}', ('out_of_range', 0, 'a', None)),
            (b'{"a":"xxx","b":[{"b64":"AA=="}]}', ({'a': 'text', 'b': 'bytes[1]'}, [[b'xxx', [b'\x00']]])),
            (
             b'{"b":1,"a":2}\n{"a":3,"b":4}\n{"c":5}',
             ({'b': 'int64?', 'a': 'int64?', 'c': 'int64?'}, [[1, 2, None], [4, 3, None], [None, None, 5]])),
            (b'{"context":{"a":1},"feature_lists":{}}', ('unsupported_kind', 0, None, None)),
            (b'{"context":1,"feature_lists":{}}', ('schema_conflict', 0, 'feature_lists', None)),
            (b'{"a\\u0062":1}\n{"ab":2}', ({'ab': 'int64'}, [[1], [2]])),
        ]),
        ('ndjson', None, {'nonfinite': 'null'}, [
            (b'{"a":[1,null]}', ({'a': 'float64[2]'}, [[[1.0, nan]]])),
            (b'{"a":[null,"x"]}', ('null_value', 0, 'a', None)),
        ]),
        ('ndjson', None, {'nonfinite': 'bare'}, [
            (b'{"a":[NaN,-Infinity,Infinity]}\n{"a":NaN}', ('schema_conflict', 1, 'a', None)),
            (b'{"a":NaN}\n{"a":1}', ({'a': 'float64'}, [[nan], [1.0]])),
        ]),
        ('ndjson', {'a': {'dtype': 'float32', 'shape': [None]}}, {'nonfinite': 'null'}, [
            (b'{"a":[null,1]}', [[[nan, 1.0]]]),
        ]),
        ('ndjson', {'a': {'dtype': 'float32', 'shape': [1]}}, {}, [
            (b'{"a":[null]}', ('null_value', 0, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'float4_e2m1fn', 'shape': [1]}}, {'nonfinite': 'bare'}, [
            (b'{"a":[NaN]}', ('out_of_range', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'int64'}, {'nonfinite': 'bare'}, [
            (b'{"a":NaN}', ('schema_conflict', 0, 'a', None)),
        ]),
    ],
    'arrays of a declared shape': [
        ('ndjson', {'a': {'dtype': 'int64', 'shape': [2]}}, {}, [
            (b'{"a":[1,2]}\n{"a":[3,4]}', [[[1, 2]], [[3, 4]]]),
            (b'{"a":[1]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":1}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[1,null]}', ('null_value', 0, 'a', None)),
            (b'{"a":[1,[2]]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[1,2]}\n{"a":[1,"x"]}', ('inexact_integer', 1, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'float32', 'shape': [2, 2]}}, {}, [
            (b'{"a":[[1,2],[3,4.5]]}', [[[[1.0, 2.0], [3.0, 4.5]]]]),
            (b'{"a":[[1,2],[3]]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[[1,2],3]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[[1,2],null]}', ('null_value', 0, 'a', None)),
            (b'{"a":[1,2,3,4]}', ('schema_conflict', 0, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'int64', 'shape': [None]}}, {}, [
            (b'{"a":[]}\n{"a":[1,2]}', [[[]], [[1, 2]]]),
            (b'{"a":[[1]]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":5}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[1]}\n{"a":[1,"2x"]}', ('inexact_integer', 1, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'text', 'shape': [None]}}, {}, [
            (
             b'{"a":["x","y"]}\n{"a":[]}\n{"a":[{"b64":"eg=="},"w"]}',
             [[[b'x', b'y']], [[]], [[b'z', b'w']]]),
            (b'{"a":[1]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":["x",null]}', ('null_value', 0, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'float64', 'shape': [None, 2]}}, {}, [
            (b'{"a":[[1,2],[3,4]]}\n{"a":[]}', [[[[1.0, 2.0], [3.0, 4.0]]], [[]]]),
            (b'{"a":[[1,2],[3]]}', ('ragged', 0, 'a', None)),
            (b'{"a":[[1,2,3]]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[[1,2],3]}', ('ragged', 0, 'a', None)),
            (b'{"a":[[]]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[1,2]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[[[1],[2,3]]]}', ('ragged', 0, 'a', None)),
            (b'{"a":[[true,1]]}\n{"a":5}', ('schema_conflict', 1, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'int32', 'shape': [None, None]}}, {}, [
            (
             b'{"a":[[1,2,3]]}\n{"a":[[1],[2]]}\n{"a":[]}\n{"a":[[],[]]}',
             [[[[1, 2, 3]]], [[[1], [2]]], [[]], [[[], []]]]),
            (b'{"a":[[1],[2,3]]}', ('ragged', 0, 'a', None)),
            (b'{"a":[1]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[[[1]]]}', ('schema_conflict', 0, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'int16', 'shape': [0]}}, {}, [
            (b'{"a":[]}', [[[]]]),
            (b'{"a":[1]}', ('schema_conflict', 0, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'int16', 'shape': [0, None]}}, {}, [
            (b'{"a":[]}', [[[]]]),
            (b'{"a":[[]]}', ('schema_conflict', 0, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'float32', 'shape': [None, 0]}}, {}, [
            (b'{"a":[]}', [[[]]]),
            (b'{"a":[[],[]]}', ('schema_conflict', 0, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'complex64', 'shape': [None]}}, {}, [
            (b'{"a":[[1,2],[3,4]]}\n{"a":[]}', [[[(1+2j), (3+4j)]], [[]]]),
            (b'{"a":[1,2]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[[1,2,3]]}', ('schema_conflict', 0, 'a', None)),
        ]),
    ],
    'ragged values': [
        ('ndjson', {'a': {'dtype': 'int64', 'shape': [None, None], 'kind': 'ragged'}}, {}, [
            (b'{"a":[[1],[],[2,3]]}\n{"a":[]}', [[[[1], [], [2, 3]]], [[]]]),
            (b'{"a":[1]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[[1],[[2]]]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[[1],["x"]]}', ('inexact_integer', 0, 'a', None)),
            (
             b'{"a":{"values":[1,2,3],"row_splits":[[0,1,1,3]]}}\n{"a":[[4]]'
             b'}\n{"a":{"values":[],"row_splits":[[0]],"dtype":"int64"}}',
             [[[[1], [], [2, 3]]], [[[4]]], [[]]]),
            (b'{"a":{"values":[1],"row_splits":[[0,2]]}}', ('invalid_row_splits', 0, 'a', None)),
            (b'{"a":{"values":[1],"row_splits":[[0,1],[0,1]]}}', ('invalid_row_splits', 0, 'a', None)),
            (b'{"a":{"values":[1],"row_splits":[0,1]}}', ('invalid_row_splits', 0, 'a', None)),
            (b'{"a":{"values":[1,2],"row_splits":[[0,2,1,2]]}}', ('invalid_row_splits', 0, 'a', None)),
            (
             b'{"a":{"values":[1],"row_splits":[[0,4611686018427387904,9223372036854775807,'
             b'-9223372036854775808,-4611686018427387904,-1,1]]}}',
             ('invalid_row_splits', 0, 'a', None)),
            (b'{"a":{"values":[1],"row_splits":[[]]}}', ('invalid_row_splits', 0, 'a', None)),
            (b'{"a":{"values":[1],"row_splits":[[1,1]]}}', ('invalid_row_splits', 0, 'a', None)),
            (b'{"a":{"values":[1],"row_splits":[[0,1.0]]}}', ('invalid_row_splits', 0, 'a', None)),
            (
             b'{"a":{"values":[1],"row_splits":[[0,18446744073709551615]]}}',
             ('invalid_row_splits', 0, 'a', None)),
            (
             b'{"a":[[1]]}\n{"a":{"values":[1],"row_splits":[[0,1]]}}\n{"a":{"values":[1],"row_splits":[[0,2]]}}\n'
             b'{"a":{"values":[1]}}\n{"a":[1]}',
             ('invalid_row_splits', 2, 'a', None)),
            (b'{"a":{"values":[1],"row_splits":[[0,2]]}}\n{"a":5}', ('invalid_row_splits', 0, 'a', None)),
            (
             b'{"a":{"values":[1],"row_splits":[[0,1]]}}\n{"a":[[2],["x"]]}\n{"a":{"values":["y"],"row_splits":[[0,1]]}}',
             ('inexact_integer', 1, 'a', None)),
            (b'{"a":{"values":1,"row_splits":[[0]]}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":[1]}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":[1],"row_splits":[[0,1]],"dtype":"int32"}}', ('dtype_mismatch', 0, 'a', None)),
            (b'{"a":{"values":[1],"row_splits":[[0,1]],"dtype":"x"}}', ('unknown_dtype', 0, 'a', None)),
            (b'{"a":{"values":[1],"row_splits":[[0,1]],"dtype":5}}', ('unknown_dtype', 0, 'a', None)),
            (b'{"a":{"values":[1,"x"],"row_splits":[[0,2]]}}', ('inexact_integer', 0, 'a', None)),
            (b'{"a":{"b64":"AA=="}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":null}', ('schema_conflict', 0, 'a', None)),
        ]),
        ('ndjson', {'a': {'dtype': 'float32', 'shape': [2, None, 2], 'kind': 'ragged'}}, {}, [
            (b'{"a":[[[1,2]],[]]}', [[[[[1.0, 2.0]], []]]]),
            (b'{"a":[[[1,2]]]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[[[1,2,3]],[]]}', ('schema_conflict', 0, 'a', None)),
            (
             b'{"a":{"values":[1,2,3,4],"row_splits":[[0,2],[0,1,2]]}}',
             ('invalid_row_splits', 0, 'a', None)),
            (b'{"a":{"values":[1,2,3,4],"row_splits":[[0,1,2]]}}', [[[[[1.0, 2.0]], [[3.0, 4.0]]]]]),
            (b'{"a":{"values":[[1,2],[3,4]],"row_splits":[[0,1,2]]}}', [[[[[1.0, 2.0]], [[3.0, 4.0]]]]]),
            (
             b'{"a":{"values":[1,2,3,4],"row_splits":[[0,1,2]]}}\n{"a":[[],[[5,6],[7,8]]]}\n'
             b'{"a":{"row_splits":[[0,0,1]],"values":[[9,10]]}}\n{"a":{"values":[],"row_splits":[[0,0,0]]}}\n'
             b'{"a":[[[11,12]],[]]}',
             [[[[[1.0, 2.0]], [[3.0, 4.0]]]], [[[], [[5.0, 6.0], [7.0, 8.0]]]], [[[], [[9.0, 10.0]]]],
              [[[], []]], [[[[11.0, 12.0]], []]]]),
            (
             b'{"a":{"values":[1,2],"row_splits":[[0,0,1]]}}\n{"a":{"values":[[1,2],[3]],"row_splits":[[0,0,2]]}}',
             ('schema_conflict', 1, 'a', None)),
            (
             b'{"a":{"values":[1,2],"row_splits":[[0,0,1]]}}\n{"a":{"values":[1,2],"row_splits":[[0,1]]}}',
             ('schema_conflict', 1, 'a', None)),
            (b'{"a":{"values":[1,2,3],"row_splits":[[0,1,1]]}}', ('shape_mismatch', 0, 'a', None)),
            (b'{"a":{"values":[1,2],"row_splits":[[0,1]]}}', ('schema_conflict', 0, 'a', None)),
        ]),
    ],
    'sparse values': [
        ('ndjson', {'a': {'dtype': 'float32', 'shape': [2, 3], 'kind': 'sparse'}}, {}, [
            (
             b'{"a":{"values":[1,2.5],"indices":[[1,2],[0,0]]}}\n{"a":{"indi'
             b'ces":[],"values":[],"dense_shape":[2,3],"dtype":"float32"}}',
             [[{'values': [1.0, 2.5], 'indices': [[1, 2], [0, 0]]}], [{'values': [], 'indices': []}]]),
            (b'{"a":{"values":[1],"indices":[[2,0]]}}', ('index_out_of_bounds', 0, 'a', None)),
            (b'{"a":{"values":[1],"indices":[[0,-1]]}}', ('index_out_of_bounds', 0, 'a', None)),
            (b'{"a":{"values":[1],"indices":[[0]]}}', ('shape_mismatch', 0, 'a', None)),
            (b'{"a":{"values":[1],"indices":[0,1]}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":[1],"indices":[[0,0],[0,1]]}}', ('shape_mismatch', 0, 'a', None)),
            (b'{"a":{"values":[1],"indices":[[0,1.5]]}}', ('schema_conflict', 0, 'a', None)),
            (
             b'{"a":{"values":[1],"indices":[[0,18446744073709551615]]}}',
             ('index_out_of_bounds', 0, 'a', None)),
            (b'{"a":{"values":[1],"indices":[[0,0],1]}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":["x"],"indices":[[0,0]]}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":5,"indices":[[0,0]]}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":[1]}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":[1],"indices":[[0,0]],"x":1}}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":[1]}', ('schema_conflict', 0, 'a', None)),
            (b'{"a":{"values":[],"indices":[],"dense_shape":[3,2]}}', ('shape_mismatch', 0, 'a', None)),
            (b'{"a":{"values":[],"indices":[],"dense_shape":5}}', ('shape_mismatch', 0, 'a', None)),
            (b'{"a":{"values":[],"indices":[],"dtype":"int64"}}', ('dtype_mismatch', 0, 'a', None)),
            (
             b'{"a":{"values":[],"indices":[],"dtype":null,"dense_shape":null}}',
             [[{'values': [], 'indices': []}]]),
        ]),
        ('ndjson', {'a': {'dtype': 'text', 'shape': [4], 'kind': 'sparse'}}, {}, [
            (
             b'{"a":{"values":["x","y"],"indices":[3,0]}}\n{"a":{"values":["z"],"indices":[[1]]}}',
             [[{'values': [b'x', b'y'], 'indices': [[3], [0]]}], [{'values': [b'z'], 'indices': [[1]]}]]),
            (b'{"a":{"values":["x"],"indices":[4]}}', ('index_out_of_bounds', 0, 'a', None)),
            (b'{"a":{"values":["x","y"],"indices":[[1],2]}}', ('schema_conflict', 0, 'a', None)),
        ]),
    ],
    'SequenceExamples': [
        ('ndjson', {
            'c': {'dtype': 'int64', 'nullable': True},
            'f': {'dtype': 'float32', 'shape': [None, 2], 'kind': 'sequence', 'nullable': True},
            'g': {'dtype': 'text', 'shape': [None], 'kind': 'sequence', 'nullable': True},
            'h': {'dtype': 'int64', 'shape': [None, None], 'kind': 'sequence', 'nullable': True},
        }, {}, [
            (
             b'{"context":{"c":1},"feature_lists":{"f":[[1,2],[3,4]],"g":["'
             b'x"],"h":[[1],[],[2,3]]}}\n{"context":null}\n{"feature_lists":{'
             b'"f":[]}}',
             [[1, [[1.0, 2.0], [3.0, 4.0]], [b'x'], [[1], [], [2, 3]]], [None, None, None, None], [None, [],
              None, None]]),
            (b'{"context":{"f":[]}}', ('schema_conflict', 0, 'f', None)),
            (b'{"feature_lists":{"c":1}}', ('schema_conflict', 0, 'c', None)),
            (b'{"context":5}', ('invalid_sequence_example', 0, None, None)),
            (b'{"x":1}', ('invalid_sequence_example', 0, None, None)),
            (b'{"context":{"z":1}}', ('schema_conflict', 0, 'z', None)),
            (b'{"feature_lists":{"f":1}}', ('schema_conflict', 0, 'f', None)),
            (b'{"feature_lists":{"f":[[1]]}}', ('schema_conflict', 0, 'f', None)),
            (b'{"feature_lists":{"f":[null]}}', ('null_value', 0, 'f', None)),
            (b'{"feature_lists":{"g":[null]}}', ('null_value', 0, 'g', None)),
            (b'{"feature_lists":{"h":[[1],["x"]]}}', ('inexact_integer', 0, 'h', None)),
        ]),
        ('ndjson', None, {'message': 'sequence_example'}, [
            (
             b'{"context":{"a":1,"t":"x"},"feature_lists":{"s":[[1,2],[3,4]'
             b'],"r":[["x"],[]]}}\n{"feature_lists":{"s":[]}}',
             ({'a': 'int64?', 't': 'text?', 's': 'sequence int64[null,2]', 'r': 'sequence text[null,null]?'},
              [[1, b'x', [[1, 2], [3, 4]], [[b'x'], []]], [None, None, [], None]])),
            (b'{"context":{"a":1},"feature_lists":{"a":[1]}}', ('duplicate_feature', 0, 'a', None)),
            (b'{"feature_lists":{"s":5}}', ('schema_conflict', 0, 's', None)),
            (b'{"feature_lists":{"s":[[1],[[2]]]}}', ('ragged', 0, 's', None)),
            (b'{"feature_lists":{"s":[[[1],[2,3]]]}}', ('ragged', 0, 's', None)),
            (b'{"feature_lists":{"s":[1,"x"]}}', ('schema_conflict', 0, 's', None)),
            (b'{"a":1}', ('invalid_sequence_example', 0, None, None)),
            (b'{"context":{"b64":"AA=="}}', ({'b64': 'text'}, [[b'AA==']])),
            (b'{}', ({}, [[]])),
            (b'{"context":{"a":null},"feature_lists":{"s":[]}}', ({}, [[]])),
        ]),
    ],
    'what is no strict JSON, after a row that is': [
        ('ndjson', None, {}, [
            (b'{"a":1}\n\n{"a":1,}\n{"a":3}', ('invalid_json', 1, None, 16)),
            (b'{"a":1}\n\n{"a":1} {"a":2}\n{"a":3}', ('invalid_json', 1, None, 17)),
            (b'{"a":1}\n\n{"a":NaN}\n{"a":3}', ('nonfinite_token', 1, None, 14)),
            (b'{"a":1}\n\n{"a":-Infinity}\n{"a":3}', ('nonfinite_token', 1, None, 14)),
            (b'{"a":1}\n\n{"a":1,"a":2}\n{"a":3}', ('duplicate_key', 1, None, 16)),
            (b'{"a":1}\n\n{"a":1,"b":{"a":1,"a":2}}\n{"a":3}', ('duplicate_key', 1, None, 27)),
            (b'{"a":1}\n\n{"a":"\xff"}\n{"a":3}', ('invalid_utf8', 1, None, 15)),
            (b'{"a":1}\n\n{"a":"\xed\xa0\x80"}\n{"a":3}', ('invalid_utf8', 1, None, 15)),
            (b'{"a":1}\n\n{"a":"\\ud800"}\n{"a":3}', ('lone_surrogate', 1, None, 15)),
            (b'{"a":1}\n\n{"a":"\\udc00\\ud800"}\n{"a":3}', ('lone_surrogate', 1, None, 15)),
            (b'{"a":1}\n\n{"a":"\\x"}\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n{"a":"\x00"}\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n\xef\xbb\xbf{}\n{"a":3}', ('byte_order_mark', 1, None, 9)),
            (b'{"a":1}\n\n{"a":' + b'1' * 5000 + b'}\n{"a":3}', ('integer_too_large', 1, None, 14)),
            (b'{"a":1}\n\n{"a":' + b'[' * 600 + b'\n{"a":3}', ('json_too_deep', 1, None, 525)),
            (
             b'{"a":1}\n\n{"a":' + b'[' * 511 + b'' + b']' * 511 + b'}\n{"a":3}',
             ('schema_conflict', 1, 'a', None)),
            (b'{"a":1}\n\n[1]\n{"a":3}', ('ambiguous_json', 1, None, 9)),
            (b'{"a":1}\n\n5\n{"a":3}', ('ambiguous_json', 1, None, 9)),
            (b'{"a":1}\n\n{"a":01}\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n{"a":1.}\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n{"a":.5}\n{"a":3}', ('invalid_json', 1, None, 14)),
            (b'{"a":1}\n\n{"a":+1}\n{"a":3}', ('invalid_json', 1, None, 14)),
            (b'{"a":1}\n\n{"a":1e}\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n{"a":-}\n{"a":3}', ('invalid_json', 1, None, 14)),
            (b'{"a":1}\n\n{"a":tru}\n{"a":3}', ('invalid_json', 1, None, 14)),
            (b'{"a":1}\n\n{"a":nul}\n{"a":3}', ('invalid_json', 1, None, 14)),
            (b'{"a":1}\n\n{"a"}\n{"a":3}', ('invalid_json', 1, None, 13)),
            (b'{"a":1}\n\n{"a":}\n{"a":3}', ('invalid_json', 1, None, 14)),
            (b'{"a":1}\n\n{a:1}\n{"a":3}', ('invalid_json', 1, None, 10)),
            (b'{"a":1}\n\n{"a":1\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n{"a":[1,]}\n{"a":3}', ('invalid_json', 1, None, 17)),
            (b'{"a":1}\n\n{"a":[,1]}\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n{"a":[1 2]}\n{"a":3}', ('invalid_json', 1, None, 17)),
            (b'{"a":1}\n\n{"a":"x\n{"a":3}', ('invalid_json', 1, None, 14)),
            (b'{"a":1}\n\n{\'a\':1}\n{"a":3}', ('invalid_json', 1, None, 10)),
            (b'{"a":1}\n\n{"a":1]\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n{"a":[1}\n{"a":3}', ('invalid_json', 1, None, 16)),
            (b'{"a":1}\n\n"x"\n{"a":3}', ('ambiguous_json', 1, None, 9)),
            (b'{"a":1}\n\nnullx\n{"a":3}', ('invalid_json', 1, None, 13)),
            (b'{"a":1}\n\n{"\xff":1}\n{"a":3}', ('invalid_utf8', 1, None, 11)),
            (b'{"a":1}\n\n{"\\udc00":1}\n{"a":3}', ('lone_surrogate', 1, None, 11)),
            (b'{"a":1}\n\n{"a":0x1}\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n{"a":1e99999999999}\n{"a":3}', ('out_of_range', 1, 'a', None)),
            (b'{"a":1}\n\n{"a":1_0}\n{"a":3}', ('invalid_json', 1, None, 15)),
            (b'{"a":1}\n\n{"a":\xc2\xa01}\n{"a":3}', ('invalid_json', 1, None, 14)),
        ]),
    ],
    'keys and nulls': [
        ('ndjson', {'a': 'int8', 'b': {'dtype': 'text', 'nullable': True}}, {}, [
            (b'{"a":1}\n{"b":"x"}', ('schema_conflict', 1, 'a', None)),
            (b'{"a":1,"z":1}', ('schema_conflict', 0, 'z', None)),
            (b'{"a":1,"z":null}', [[1, None]]),
        ]),
        ('ndjson', {'a': 'int8', 'b': {'dtype': 'text', 'nullable': True}}, {'undeclared': 'drop'}, [
            (b'{"a":1,"z":[1]}\n{"a":2}', [[1, None], [2, None]]),
        ]),
        ('ndjson', {'a': 'int8', 'b': {'dtype': 'text', 'nullable': True}}, {}, [
            (b'{"a":null}', ('schema_conflict', 0, 'a', None)),
            (b'{"b":"x","a":1}\n{"a":2,"b":null}', [[1, b'x'], [2, None]]),
        ]),
        ('json', {'a': 'int8', 'b': {'dtype': 'text', 'nullable': True}}, {}, [
            (b'{"a":[1,2],"z":[null,null]}', [[1, None], [2, None]]),
            (b'{"a":[1,2],"z":[null,3]}', ('schema_conflict', 1, 'z', None)),
            (b'[{"a":1},{"z":1}]', ('schema_conflict', 1, 'z', None)),
            (b'{"a":[1,2],"z":[null,1]}', ('schema_conflict', 1, 'z', None)),
            (b'{"a":[1,null]}', ('schema_conflict', 1, 'a', None)),
            (b'{"b":["x"]}', ('schema_conflict', 0, 'a', None)),
        ]),
        ('ndjson', {'a': 'int8', 'b': {'dtype': 'text', 'nullable': True}}, {}, [
            (b'', []),
        ]),
        ('json', {'a': 'int8', 'b': {'dtype': 'text', 'nullable': True}}, {}, [
            (b'[]', []),
            (b'[{}]', ('schema_conflict', 0, 'a', None)),
        ]),
    ],
    'bodies of one JSON text': [
        ('json', None, {}, [
            (b'[{"a":1,"b":"x"},{"a":null}]', ({'a': 'int64?', 'b': 'text?'}, [[1, b'x'], [None, None]])),
            (b'{"instances":[{"instances":1}],"signature_name":"s"}', ({'instances': 'int64'}, [[1]])),
            (b'{"instances":[]}', ({}, [])),
            (b'{"instances":[{"b64":"AA=="}]}', ({'b64': 'text'}, [[b'AA==']])),
            (b'[{"b64":"AA=="}]', ({'b64': 'text'}, [[b'AA==']])),
            (
             b'{"inputs":{"a":[1,2],"b":[[1.5],[2]]},"id":"7"}',
             ({'a': 'int64', 'b': 'float64[1]'}, [[1, [1.5]], [2, [2.0]]])),
            (b'{"columns":{"inputs":[1,null]}}', ({'inputs': 'int64?'}, [[1], [None]])),
            (b'{"a":[true],"id":["x"]}', ({'a': 'bool', 'id': 'text'}, [[True, b'x']])),
            (
             b'{"a":[[1],[2,3]],"b":["x",null]}',
             ({'a': 'int64[null]', 'b': 'text?'}, [[[1], b'x'], [[2, 3], None]])),
            (b'{}', ({}, [])),
            (b'{"a":[]}', ({}, [])),
            (b'{"inputs":[]}', ({}, [])),
            (b'{"a":[1,2],"b":[1]}', ('row_count_mismatch', None, 'b', None)),
            (b'{"a":1}', ('no_rows', None, 'a', None)),
            (b'{"columns":{"a":{"b64":""}}}', ('no_rows', None, 'a', None)),
            (b'{"inputs":{"a":[],"b":[1]}}', ('row_count_mismatch', None, 'b', None)),
            (b'[{"a":1},{"b":"x"}]', ({'a': 'int64?', 'b': 'text?'}, [[1, None], [None, b'x']])),
            (b'[{"b":[-0,1.5]}]', ({'b': 'float64[2]'}, [[[-0.0, 1.5]]])),
            (b'{"b":[[-0,1.5]]}', ({'b': 'float64[2]'}, [[[-0.0, 1.5]]])),
            (b'{"schema":{"features":{"x":{"dtype":"int8","shape":[-0]}}},"instances":[{"x":[]}]}',
             ({'x': 'int8[0]'}, [[[]]])),
            (b'{"a":[1],"a":[2]}', ('duplicate_key', None, None, 9)),
            (b'[{"a":1e400}]', ('out_of_range', 0, 'a', None)),
            (b'[{"a":9223372036854775808}]', ('out_of_range', 0, 'a', None)),
            (b'[{"a":9007199254740993},{"a":1.5}]', ('inexact_integer', 0, 'a', None)),
            (b'[{"\\udc00":1}]', ('lone_surrogate', None, None, 3)),
            (b'[{"":1}]', ('invalid_feature_name', None, '', None)),
            (b'"a"', ('ambiguous_json', None, None, None)),
            (b'{"instances":{"a":[1]}}', ('ambiguous_json', None, None, None)),
            (b'{"instances":[],"a":[1]}', ('ambiguous_json', None, None, None)),
            (b'5', ('ambiguous_json', None, None, None)),
            (b'null', ('ambiguous_json', None, None, None)),
            (b'[1]', ('ambiguous_json', None, None, None)),
            (b'[{"a":1},5]', ('ambiguous_json', None, None, None)),
            (b'{"b64":"AA=="}', ('ambiguous_json', None, None, None)),
            (b'{"schema":{"features":{}}}', ('ambiguous_json', None, None, None)),
            (b'{"outputs":[]}', ('ambiguous_json', None, None, None)),
            (b'{"instances":[1]}', ('ambiguous_json', None, None, None)),
            (b'{"inputs":[1]}', ('ambiguous_json', None, None, None)),
            (b'{"columns":[1]}', ('ambiguous_json', None, None, None)),
            (b'{"instances":[],"inputs":{}}', ('ambiguous_json', None, None, None)),
            (b'{"columns":{},"id":"7"}', ('ambiguous_json', None, None, None)),
            (
             b'{"instances":[{"a":1}],"schema":{"features":{"a":{"dtype":"uint8"}}}}',
             ({'a': 'uint8'}, [[1]])),
            (
             b'{"columns":{"a":["5"]},"schema":{"features":{"a":{"dtype":"uint64"}}}}',
             ({'a': 'uint64'}, [[5]])),
            (b'{"instances":[],"schema":[]}', ('invalid_schema', None, None, None)),
            (b'', ('invalid_json', None, None, 0)),
            (b'{"a":1}\n{"a":2}', ('invalid_json', None, None, 8)),
            (b'[{"a":1,}]', ('invalid_json', None, None, 8)),
            (b'[{"a":NaN}]', ('nonfinite_token', None, None, 6)),
            (b'\xef\xbb\xbf[]', ('byte_order_mark', None, None, 0)),
            (b' [ { "a" : [ 1 , 2 ] } ] ', ({'a': 'int64[2]'}, [[[1, 2]]])),
        ]),
        ('json', None, {'message': 'sequence_example'}, [
            (
             b'[{"context":{"a":1},"feature_lists":{"s":[1]}}]',
             ({'a': 'int64', 's': 'sequence int64[null]'}, [[1, [1]]])),
        ]),
        ('json', None, {}, [
            (b'[{"context":{},"feature_lists":{}}]', ('unsupported_kind', 0, None, None)),
            (b'[{"a":1},{"a":"x"}]', ('schema_conflict', 1, 'a', None)),
        ]),
    ],
    'bodies of one JSON text, of numbers that are none': [
        ('json', None, {'nonfinite': 'bare'}, [
            (b'[{"a":NaN},{"a":1}]', ({'a': 'float64'}, [[nan], [1.0]])),
        ]),
        ('json', None, {'nonfinite': 'null'}, [
            (b'[{"a":[null,1]}]', ({'a': 'float64[2]'}, [[[nan, 1.0]]])),
            (b'[{"a":null},{"a":1.5}]', ({'a': 'float64?'}, [[None], [1.5]])),
        ]),
    ],
    'inputs of Open Inference': [
        ('json', None, {}, [
            (
             b'{"inputs":[{"name":"a","datatype":"FP32","shape":[2,1],"data":[1,2.5]}]}',
             ({'a': 'float32[1]'}, [[[1.0]], [[2.5]]])),
            (
             b'{"inputs":[{"name":"a","datatype":"FP32","shape":[2,2],"data":[[1,2],[3,4]]}]}',
             ({'a': 'float32[2]'}, [[[1.0, 2.0]], [[3.0, 4.0]]])),
            (
             b'{"inputs":[{"name":"a","datatype":"INT8","data":[1,2]},{"nam'
             b'e":"b","datatype":"BYTES","shape":[2],"data":["x",{"b64":"/w'
             b'"}]}]}',
             ({'a': 'int8', 'b': 'bytes'}, [[1, b'x'], [2, b'\xff']])),
        ]),
        ('json', {'a': 'bytes'}, {}, [
            (b'{"inputs":[{"name":"a","datatype":"BYTES","shape":[1],"data":["x"]}]}', [[b'x']]),
        ]),
        ('json', None, {}, [
            (
             b'{"inputs":[{"name":"a","datatype":"INT8","shape":[2],"data":[1]}]}',
             ('shape_mismatch', None, None, None)),
            (
             b'{"inputs":[{"name":"a","datatype":"INT8","shape":[],"data":[1]}]}',
             ('no_rows', None, 'a', None)),
            (b'{"inputs":[{"name":"a","datatype":"INT8","data":5}]}', ('no_rows', None, 'a', None)),
            (b'{"inputs":[{"name":"a","datatype":"INT8","data":[[1],[2,3]]}]}', ('ragged', None, 'a', None)),
            (b'{"inputs":[{"datatype":"INT8","data":[1]}]}', ('invalid_tensor', None, None, None)),
            (b'{"inputs":[{"name":"a","datatype":"INT8"}]}', ('invalid_tensor', None, None, None)),
            (
             b'{"inputs":[{"name":"a","datatype":"INT8","data":[1]},{"name"'
             b':"a","datatype":"INT8","data":[1]}]}',
             ('duplicate_name', None, None, None)),
            (
             b'{"inputs":[{"name":"a","datatype":"INT8","data":[1]},{"name"'
             b':"b","datatype":"INT8","data":[1,2]}]}',
             ('row_count_mismatch', None, 'b', None)),
        ]),
        ('json', {'a': 'int64'}, {}, [
            (b'{"inputs":[{"name":"a","datatype":"FP32","data":[1]}]}', ('schema_conflict', None, 'a', None)),
        ]),
        ('json', None, {}, [
            (
             b'{"inputs":[{"name":"a","datatype":"FP32","data":[16777217]}]}',
             ('inexact_integer', 0, 'a', None)),
            (b'{"inputs":[{"name":"a","datatype":"INT8","data":[300]}]}', ('out_of_range', 0, 'a', None)),
            (
             b'{"inputs":[{"name":"a","datatype":"BOOL","shape":[2,0],"data":[]}]}',
             ({'a': 'bool[0]'}, [[[]], [[]]])),
            (
             b'{"inputs":[{"name":"a","datatype":"BOOL","shape":[3,0,2],"data":[[],[],[]]}]}',
             ({'a': 'bool[0,2]'}, [[[]], [[]], [[]]])),
            (
             b'{"inputs":[{"name":"","datatype":"INT8","data":[1]}]}',
             ('invalid_feature_name', None, '', None)),
            (b'{"inputs":[{"name":"a","datatype":"X","data":[1]}]}', ('unknown_dtype', None, None, None)),
        ]),
        ('json', {'a': {'dtype': 'int64', 'shape': [None]}}, {}, [
            (b'{"inputs":[{"name":"a","datatype":"INT64","shape":[1,1],"data":[1]}]}', [[[1]]]),
        ]),
        ('json', {'a': 'int64'}, {}, [
            (
             b'{"inputs":[{"name":"a","datatype":"INT64","data":[1]},{"name'
             b'":"z","datatype":"INT64","data":[1]}]}',
             ('schema_conflict', 0, 'z', None)),
        ]),
    ],
}
# fmt: on
