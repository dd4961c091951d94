# SPDX-License-Identifier: MIT
"""What goes wrong, as exceptions: one kind for each code of <memtally/error_code.h>, with the library's own sentence."""

from __future__ import annotations


class Error(Exception):
    """Something that memtally could not do. The text says what to do next, where that is known."""

    code = "MT_EIO"

    def __init__(self, sentence: str, details: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((sentence, *details)))
        self.sentence = sentence
        self.details = details

    def __reduce__(self) -> tuple[type[Error], tuple[str, tuple[str, ...]]]:
        return type(self), (self.sentence, self.details)


class ArgumentError(Error, ValueError):
    """An argument is not valid."""

    code = "MT_EARG"


class OutOfMemory(Error, MemoryError):
    """Memory ran out in memtally itself."""

    code = "MT_ENOMEM"


class InputOutputError(Error):
    """Input or output failed."""

    code = "MT_EIO"


class NotFound(Error, LookupError):
    """A file, a device, an engine is not there."""

    code = "MT_ENOTFOUND"


class NotPermitted(Error):
    """The system refuses."""

    code = "MT_EPERM"


class BadFormat(Error):
    """Data are not in the format that was expected."""

    code = "MT_EFORMAT"


class Truncated(Error):
    """Data end too early."""

    code = "MT_ETRUNCATED"


class UnknownVersion(Error):
    """Data are of a version that this build does not know."""

    code = "MT_EVERSION"


class Corrupt(Error):
    """Data fail their checksum."""

    code = "MT_ECORRUPT"


class Unsupported(Error):
    """This machine, engine or program cannot do it."""

    code = "MT_EUNSUPPORTED"


class Busy(Error):
    """Something is in use already."""

    code = "MT_EBUSY"


class TimedOut(Error):
    """It took too long."""

    code = "MT_ETIMEOUT"


class ChildFailed(Error):
    """A program that memtally started failed."""

    code = "MT_ECHILD"


class LimitExceeded(Error):
    """A limit was exceeded."""

    code = "MT_ELIMIT"


class Cancelled(Error):
    """It was broken off."""

    code = "MT_ECANCELLED"


def _kinds() -> dict[str, type[Error]]:
    return {kind.code: kind for kind in Error.__subclasses__()}


def error_of(code: str, sentence: str, details: tuple[str, ...] = ()) -> Error:
    """The exception for a code by its constant's name ("MT_EARG")."""
    return _kinds().get(code, Error)(sentence, details)
