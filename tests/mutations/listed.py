"""The list: all mutations, area by area."""

from __future__ import annotations

from typing import Final

from tests.mutations import api, codecs, commands, datasets, domain, kernels, service, storage, transforms
from tests.mutations.entry import Mutation

MUTATIONS: Final[tuple[Mutation, ...]] = (
    *codecs.MUTATIONS,
    *kernels.MUTATIONS,
    *datasets.MUTATIONS,
    *api.MUTATIONS,
    *transforms.MUTATIONS,
    *storage.MUTATIONS,
    *domain.MUTATIONS,
    *commands.MUTATIONS,
    *service.MUTATIONS,
)
