"""The pictures of a page: as many as there is room for, and charged before they are there."""

import numpy as np

from app.api.ui.pictures import Painter, Picture
from app.domain.limits import MIB, Limits
from app.runtime.budget import Budget
from tests.support.image_processes import shared_images
from tests.support.images import encode, pixels


def painted(num_bytes: int, count: int) -> tuple[list[Picture], Budget]:
    """Heat maps of noise, of 49,152 numbers each, by a request that may hold so much."""
    budget = Budget(Limits(max_decoded_bytes=num_bytes))
    painter = Painter(shared_images(), budget, 128, 96)
    drawn = [painter.heat_map(np.random.default_rng(k).random((192, 256))) for k in range(count)]
    painter.paint()
    return drawn, budget


def test_a_page_has_no_more_pictures_than_it_can_bear() -> None:
    drawn, budget = painted(1024 * MIB, 400)
    made = [picture for picture in drawn if picture.url]
    assert 4 * MIB < sum(len(picture.url) for picture in made) < 16 * MIB
    assert {picture.why for picture in drawn if not picture.url} == {
        "It is not drawn here: the images of this page are too large together."
    }
    assert budget.peak < 100 * MIB


def test_where_there_is_little_memory_pictures_are_made_a_few_at_a_time() -> None:
    drawn, budget = painted(32 * MIB, 30)
    assert all(picture.url for picture in drawn)
    assert budget.peak <= 32 * MIB


def test_where_there_is_almost_none_they_say_so() -> None:
    [picture], _ = painted(MIB // 8, 1)
    assert "too large" in picture.why


def test_encoded_images_are_charged_while_they_wait() -> None:
    budget = Budget(Limits())
    painter = Painter(shared_images(), budget, 128, 96)
    photo = encode(pixels(480, 640, 3), "jpeg", quality=95)
    for _ in range(8):
        painter.image(memoryview(photo))
    assert budget.peak >= 8 * len(photo)
