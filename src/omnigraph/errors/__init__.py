"""Every failure of the library, as one tree of typed exceptions.

    OmniError
    ├── CompilerError                    a schema or query does not parse or type-check; carries diagnostics
    ├── BadRequestError                  refused input, nothing happened
    │   ├── ConfigurationError           a configuration file is wrong; carries diagnostics
    │   ├── AmbiguousCommitError         several commit ids begin or end with the given letters
    │   ├── BranchExistsError            the name of a new branch is taken
    │   ├── TagExistsError               the name of a new tag is taken
    │   ├── ParameterError               query parameters do not fit their declaration
    │   ├── IntegerOverflowError         integers of a query went beyond 64 bits; names the rows
    │   ├── LoadRejectedError            records of a load are wrong; carries a report
    │   ├── UnsupportedSchemaError       a schema change that no step can carry out; carries the plan
    │   ├── SchemaViolationsError        existing rows violate a new schema; carries a report
    │   ├── ChangeCursorRejectedError    a cursor or page token does not belong here
    │   ├── DirectOnlyError              a server was asked for what only works beside the storage
    │   ├── MissingPackageError          a package of an extra is not installed; an ImportError as well
    │   ├── QuerySelectionError          no query, several, or another kind of query than asked for
    │   └── MixedMutationError           one mutation query both writes and deletes
    ├── InputFileError                   a file that the caller named cannot be read
    ├── NotFoundError                    what was named does not exist
    │   ├── BranchNotFoundError
    │   ├── CommitNotFoundError
    │   └── TagNotFoundError
    ├── ConflictError                    *lost*: nothing happened, a repetition may succeed
    │   ├── ExpectedVersionMismatchError a touched table moved
    │   ├── BranchesExistError           other branches are in the way of a schema change
    │   ├── ReadSetConflictError         something only read moved
    │   └── RetryableCommitConflictError lock or catalog stayed busy
    │       └── LeaseLostError           another writer took the commit lock over
    ├── MergeConflictsError              two branches disagree; carries every conflict
    ├── ChangeDiffRefusedError           the changes of a commit are not known exactly
    │   ├── CommitHasNoParentError
    │   └── ChangeSchemaBoundaryError
    ├── ChangeFeedGapError               history that a feed needs was cleaned up
    ├── KeyConflictError                 strict insert met an existing id
    │   └── LoadKeyConflictError         an append load did; carries a report
    ├── AlreadyInitializedError, InitializationClaimedError, InitializationCommittedError
    ├── PolicyDeniedError                the policy does not allow it
    ├── PreconditionFailedError          the branch head is not the expected commit
    ├── ResourceLimitError               a configured bound would be crossed
    ├── QueryTimeoutError                a read or bulk work took longer than it may
    ├── QueryCancelledError              a read or bulk work was cancelled
    ├── BlobRangeError                   a range outside the value
    ├── BlobChangedError                 another value than the caller has seen
    ├── ExternalBlobPolicyError          an external blob is not allowed
    ├── ExternalBlobSourceError          an allowed one cannot be read
    ├── BlobIntegrityError               a stored blob is damaged
    ├── RecoveryRequiredError            *unknown*: look before you retry
    ├── HistoricalVersionReclaimedError  the version was cleaned up
    ├── HistoryReclaimedError            the commits before one were cleaned up
    ├── StorageError                     the storage below failed
    │   ├── DamageError                  a stored file does not hold what was written
    │   ├── StorageFormatError           written by another release
    │   ├── OutsideRootError             a path or link leads out of the graph
    │   └── DriftError                   a table is not where its writer left it
    ├── EmbeddingError                   the embedding provider failed
    ├── SparkError                       Spark cannot start, or a job of it failed
    ├── TransportError                   a request failed beside the graph
    │   ├── UnauthorizedError            no token, or an unknown one
    │   ├── ForbiddenHostError           an open server was addressed by a name that is not its own
    │   ├── MethodNotAllowedError        the path exists, the method does not
    │   ├── RequestTimeoutError          a body came too slowly
    │   ├── UnsupportedMediaTypeError    a body of another content type
    │   ├── TooManyRequestsError         the actor or the server has too much in flight
    │   ├── ServerUnreachableError       no response from the server
    │   ├── UnexpectedAnswerError        something else answered, or not to the end
    │   └── RemoteError                  a refusal that this release does not know
    └── InternalError                    an invariant is broken

`kind` and `code` are stable and meant for programs; the message is meant for people and says what to do next.
`http_status` and `exit_code` are the one place where failures are mapped to the two outer surfaces.
"""

from omnigraph.errors.base import AlreadyInitializedError as AlreadyInitializedError
from omnigraph.errors.base import DamageError as DamageError
from omnigraph.errors.base import Diagnostic as Diagnostic
from omnigraph.errors.base import DriftError as DriftError
from omnigraph.errors.base import EmbeddingError as EmbeddingError
from omnigraph.errors.base import HistoricalVersionReclaimedError as HistoricalVersionReclaimedError
from omnigraph.errors.base import HistoryReclaimedError as HistoryReclaimedError
from omnigraph.errors.base import InitializationClaimedError as InitializationClaimedError
from omnigraph.errors.base import InitializationCommittedError as InitializationCommittedError
from omnigraph.errors.base import OmniError as OmniError
from omnigraph.errors.base import OutsideRootError as OutsideRootError
from omnigraph.errors.base import Severity as Severity
from omnigraph.errors.base import StorageError as StorageError
from omnigraph.errors.base import StorageFailure as StorageFailure
from omnigraph.errors.base import StorageFormatError as StorageFormatError
from omnigraph.errors.base import is_panic as is_panic
from omnigraph.errors.names import AmbiguousCommitError as AmbiguousCommitError
from omnigraph.errors.names import BranchExistsError as BranchExistsError
from omnigraph.errors.names import BranchNotFoundError as BranchNotFoundError
from omnigraph.errors.names import CommitNotFoundError as CommitNotFoundError
from omnigraph.errors.names import TagExistsError as TagExistsError
from omnigraph.errors.names import TagNotFoundError as TagNotFoundError
from omnigraph.errors.requests import MAX_DIAGNOSTICS as MAX_DIAGNOSTICS
from omnigraph.errors.requests import BadRequestError as BadRequestError
from omnigraph.errors.requests import BlobChangedError as BlobChangedError
from omnigraph.errors.requests import BlobIntegrityError as BlobIntegrityError
from omnigraph.errors.requests import BlobRangeError as BlobRangeError
from omnigraph.errors.requests import CompilerError as CompilerError
from omnigraph.errors.requests import ConfigurationError as ConfigurationError
from omnigraph.errors.requests import DirectOnlyError as DirectOnlyError
from omnigraph.errors.requests import ExternalBlobPolicyError as ExternalBlobPolicyError
from omnigraph.errors.requests import ExternalBlobSourceError as ExternalBlobSourceError
from omnigraph.errors.requests import ForbiddenHostError as ForbiddenHostError
from omnigraph.errors.requests import InputFileError as InputFileError
from omnigraph.errors.requests import IntegerOverflowError as IntegerOverflowError
from omnigraph.errors.requests import MethodNotAllowedError as MethodNotAllowedError
from omnigraph.errors.requests import MissingPackageError as MissingPackageError
from omnigraph.errors.requests import MixedMutationError as MixedMutationError
from omnigraph.errors.requests import NotFoundError as NotFoundError
from omnigraph.errors.requests import ParameterError as ParameterError
from omnigraph.errors.requests import PolicyDeniedError as PolicyDeniedError
from omnigraph.errors.requests import QueryCancelledError as QueryCancelledError
from omnigraph.errors.requests import QuerySelectionError as QuerySelectionError
from omnigraph.errors.requests import QueryTimeoutError as QueryTimeoutError
from omnigraph.errors.requests import RemoteError as RemoteError
from omnigraph.errors.requests import RequestTimeoutError as RequestTimeoutError
from omnigraph.errors.requests import ResourceLimitError as ResourceLimitError
from omnigraph.errors.requests import ServerUnreachableError as ServerUnreachableError
from omnigraph.errors.requests import TooManyRequestsError as TooManyRequestsError
from omnigraph.errors.requests import TransportError as TransportError
from omnigraph.errors.requests import UnauthorizedError as UnauthorizedError
from omnigraph.errors.requests import UnexpectedAnswerError as UnexpectedAnswerError
from omnigraph.errors.requests import UnsupportedMediaTypeError as UnsupportedMediaTypeError
from omnigraph.errors.requests import without_credentials as without_credentials
from omnigraph.errors.writes import MAX_CONFLICTS as MAX_CONFLICTS
from omnigraph.errors.writes import MAX_EXAMPLES as MAX_EXAMPLES
from omnigraph.errors.writes import BadRecord as BadRecord
from omnigraph.errors.writes import BranchesExistError as BranchesExistError
from omnigraph.errors.writes import ChangeCursorRejectedError as ChangeCursorRejectedError
from omnigraph.errors.writes import ChangeDiffRefusedError as ChangeDiffRefusedError
from omnigraph.errors.writes import ChangeFeedGapError as ChangeFeedGapError
from omnigraph.errors.writes import ChangeSchemaBoundaryError as ChangeSchemaBoundaryError
from omnigraph.errors.writes import CommitHasNoParentError as CommitHasNoParentError
from omnigraph.errors.writes import ConflictError as ConflictError
from omnigraph.errors.writes import ConflictKind as ConflictKind
from omnigraph.errors.writes import ExpectedVersionMismatchError as ExpectedVersionMismatchError
from omnigraph.errors.writes import InternalError as InternalError
from omnigraph.errors.writes import KeyConflictError as KeyConflictError
from omnigraph.errors.writes import LeaseLostError as LeaseLostError
from omnigraph.errors.writes import LoadKeyConflictError as LoadKeyConflictError
from omnigraph.errors.writes import LoadRejectedError as LoadRejectedError
from omnigraph.errors.writes import LoadReport as LoadReport
from omnigraph.errors.writes import MergeConflict as MergeConflict
from omnigraph.errors.writes import MergeConflictsError as MergeConflictsError
from omnigraph.errors.writes import PreconditionFailedError as PreconditionFailedError
from omnigraph.errors.writes import ReadSetConflictError as ReadSetConflictError
from omnigraph.errors.writes import RecoveryRequiredError as RecoveryRequiredError
from omnigraph.errors.writes import RetryableCommitConflictError as RetryableCommitConflictError
from omnigraph.errors.writes import SchemaViolationsError as SchemaViolationsError
from omnigraph.errors.writes import SparkError as SparkError
from omnigraph.errors.writes import UnsupportedSchemaError as UnsupportedSchemaError

__all__ = [
    "MAX_CONFLICTS",
    "MAX_DIAGNOSTICS",
    "MAX_EXAMPLES",
    "AlreadyInitializedError",
    "AmbiguousCommitError",
    "BadRecord",
    "BadRequestError",
    "BlobChangedError",
    "BlobIntegrityError",
    "BlobRangeError",
    "BranchExistsError",
    "BranchNotFoundError",
    "BranchesExistError",
    "ChangeCursorRejectedError",
    "ChangeDiffRefusedError",
    "ChangeFeedGapError",
    "ChangeSchemaBoundaryError",
    "CommitHasNoParentError",
    "CommitNotFoundError",
    "CompilerError",
    "ConfigurationError",
    "ConflictError",
    "ConflictKind",
    "DamageError",
    "Diagnostic",
    "DirectOnlyError",
    "DriftError",
    "EmbeddingError",
    "ExpectedVersionMismatchError",
    "ExternalBlobPolicyError",
    "ExternalBlobSourceError",
    "ForbiddenHostError",
    "HistoricalVersionReclaimedError",
    "HistoryReclaimedError",
    "InitializationClaimedError",
    "InitializationCommittedError",
    "InputFileError",
    "IntegerOverflowError",
    "InternalError",
    "KeyConflictError",
    "LeaseLostError",
    "LoadKeyConflictError",
    "LoadRejectedError",
    "LoadReport",
    "MergeConflict",
    "MergeConflictsError",
    "MethodNotAllowedError",
    "MissingPackageError",
    "MixedMutationError",
    "NotFoundError",
    "OmniError",
    "OutsideRootError",
    "ParameterError",
    "PolicyDeniedError",
    "PreconditionFailedError",
    "QueryCancelledError",
    "QuerySelectionError",
    "QueryTimeoutError",
    "ReadSetConflictError",
    "RecoveryRequiredError",
    "RemoteError",
    "RequestTimeoutError",
    "ResourceLimitError",
    "RetryableCommitConflictError",
    "SchemaViolationsError",
    "ServerUnreachableError",
    "Severity",
    "SparkError",
    "StorageError",
    "StorageFailure",
    "StorageFormatError",
    "TagExistsError",
    "TagNotFoundError",
    "TooManyRequestsError",
    "TransportError",
    "UnauthorizedError",
    "UnexpectedAnswerError",
    "UnsupportedMediaTypeError",
    "UnsupportedSchemaError",
    "is_panic",
    "without_credentials",
]
