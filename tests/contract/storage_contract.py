"""What every storage promises, as tests. A subclass gives the fixture `storage`."""

from __future__ import annotations

from tests.contract.deleting import DeletingContract
from tests.contract.editing import EditingContract
from tests.contract.listing import ListingContract
from tests.contract.loading import LoadingContract
from tests.contract.overview import OverviewContract
from tests.contract.packing import PackingContract
from tests.contract.saving import SavingContract
from tests.contract.staging import StagingContract
from tests.contract.surveying import SurveyingContract
from tests.contract.threads import ThreadsContract


class StorageContract(
    SavingContract,
    LoadingContract,
    ListingContract,
    ThreadsContract,
    DeletingContract,
    EditingContract,
    OverviewContract,
    PackingContract,
    SurveyingContract,
    StagingContract,
):
    """All of it."""
