"""The errors of Multus: one tree, one class per CNI error code.  Standard library only; imports nothing.

A ``msg`` is short, starts in lower case, has no full stop and names the key and the value that are wrong;
``details`` holds what is long.  Spec: CNI 1.1.0 §5, "Error".
"""

from __future__ import annotations


class MultusError(Exception):
    """A failure that is not one of the classes below; code 999."""

    code = 999
    attached_nothing = False
    """Of an ADD: the network's first plugin has answered that it failed, or never ran, so there may be nothing to detach."""

    def __init__(self, msg: str, details: str = "") -> None:
        super().__init__(msg, details)
        self.msg = msg
        self.details = details

    def __str__(self) -> str:
        return f"{self.msg}; {self.details}" if self.details else self.msg

    def prefixed(self, where: str) -> MultusError:
        """The same error, of the same class and code, with ``where`` put in front of its message."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.msg = f"{where}: {self.msg}"
        twin.args = (twin.msg, self.details)
        twin.__cause__ = self.__cause__
        return twin

    def document(self, cni_version: str) -> dict[str, object]:
        """The error object that goes to the caller's standard output."""
        document: dict[str, object] = {"cniVersion": cni_version, "code": self.code, "msg": self.msg}
        if self.details:
            document["details"] = self.details
        return document


class IncompatibleVersionError(MultusError):
    """The configuration's CNI version is unknown, or does not allow the command; code 1."""

    code = 1


class UnsupportedFieldError(MultusError):
    """A field of the configuration is not supported; code 2.  The message names the key and the value."""

    code = 2


class UnknownContainerError(MultusError):
    """The container does not exist or was never attached, so nothing is to be cleaned up; code 3."""

    code = 3


class InvalidEnvironmentError(MultusError):
    """A ``CNI_*`` variable is missing or invalid; code 4.  The message names the variables."""

    code = 4


class IOFailureError(MultusError):
    """Reading or writing a file, a socket or standard input failed; code 5."""

    code = 5


class DecodingError(MultusError):
    """Content that is not what it should be: not JSON, or JSON of the wrong shape; code 6."""

    code = 6


class InvalidConfigError(MultusError):
    """A network configuration, an annotation or a net-attach-def is not valid; code 7."""

    code = 7


class InvalidNetnsError(MultusError):
    """The network namespace is missing, not a namespace, or the plugin's own; code 8."""

    code = 8


class TryAgainLaterError(MultusError):
    """A transient condition: the caller should try again later; code 11."""

    code = 11


class NotAvailableError(MultusError):
    """STATUS: the plugin cannot serve ADD; code 50."""

    code = 50


class LimitedConnectivityError(MultusError):
    """STATUS: the plugin cannot serve ADD, and existing containers may be cut off; code 51."""

    code = 51


class ForbiddenError(MultusError):
    """The pod may not use a network that it names, or the API server refuses us; code 100."""

    code = 100


class DelegateError(MultusError):
    """A delegate failed.  The code is the delegate's own, 999 if it gave none.

    ``is_answer`` says that the delegate told so itself and ended orderly: it was not killed, and did not succeed with
    an answer that nobody can read.
    """

    def __init__(self, msg: str, details: str = "", code: int = 999, *, is_answer: bool = False) -> None:
        super().__init__(msg, details)
        self.code = code
        self.is_answer = is_answer


class DelegateNotFoundError(MultusError):
    """Nothing serves a delegate's ``type``: no binary and no entry point; code 101.  It never ran."""

    code = 101
    attached_nothing = True


class ObjectNotFoundError(MultusError):
    """The API server, asked live, does not have the object; code 102."""

    code = 102
