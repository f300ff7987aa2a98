"""A large dataset is appended and published in bounded memory."""

import subprocess
import sys
from pathlib import Path

import pytest

WRITTEN_MIB = 256
#: Parts and shards pass through buffers of about 100 MiB in all, whatever their number.
GROWTH_MIB = 200

CODE = """
import re, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from app.allocator import return_large_blocks
from tests.support.arrow_rows import arrow_schema, batches_from_arrow
from tests.support.dataset_rows import store_rows
from app.codecs.columns import Records
from app.domain.limits import Limits, MIB
from app.domain.schema import Schema
from app.services.datasets.datasets import Datasets
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import open_store
from app.runtime.spool import Spool

SCHEMA = Schema.from_json({"features": {"image": {"dtype": "bytes"}}})
image = np.random.default_rng(0).bytes(MIB // 4)

def highest():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) >> 10

def write(name, mib):
    batch = pa.RecordBatch.from_arrays([pa.array([image] * 4, pa.binary())], schema=arrow_schema(SCHEMA))
    rows = Records(SCHEMA, batches_from_arrow(SCHEMA, (batch for _ in range(mib))))
    store_rows(datasets, name, "train", rows)
    assert datasets.publish(name, PublishOptions()).splits["train"].num_records == 4 * mib

return_large_blocks()
datasets = Datasets(open_store(Path(sys.argv[1]).as_uri()), limits=Limits(), spool=Spool(None, 1 << 30))
write("small", 1)
before = highest()
write("large", int(sys.argv[2]))
print(highest() - before)
"""


@pytest.mark.soak
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_written_rows_do_not_stay_in_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path / "data"), str(WRITTEN_MIB)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < GROWTH_MIB
