"""What only this server knows of a task: parameters that no terms publish."""

from typing import Any

from coatcheck import tasks
from coatcheck.errors import Misuse, Refused
from coatcheck.files import read_secret
from coatcheck.protocol.records import read_document
from coatcheck.protocol.terms import Work
from coatcheck.services.settings import ServerSettings


def task_of(work: Work, settings: ServerSettings) -> tasks.Task:
    """Rebuild the task of the terms with what only this server knows of it.

    Whatever is wrong is `Misuse`: files are the operator's to mend.
    """
    known: dict[str, dict[str, Any]] = {}
    try:
        if settings.insight:
            path, kind = settings.path(settings.insight), dict[str, dict[str, Any]]
            known = read_document(read_secret(path), kind, f"{path} is no file of task parameters")
        return tasks.from_params({"name": work.name, **work.params, **known.get(work.name, {})})
    except Refused as refused:
        raise Misuse(str(refused)) from None
