"""Every failure of the library, as one tree of typed exceptions.

    OmniError
    ├── CompilerError                    a schema or query does not parse or type-check; carries diagnostics
    ├── BadRequestError                  refused input, nothing happened
    │   ├── ConfigurationError           a configuration file is wrong; carries diagnostics
    │   ├── BranchExistsError            the name of a new branch is taken
    │   ├── ParameterError               query parameters do not fit their declaration
    │   ├── LoadRejectedError            records of a load are wrong; carries a report
    │   ├── UnsupportedSchemaError       a schema change that no step can carry out; carries the plan
    │   ├── SchemaViolationsError        existing rows violate a new schema; carries a report
    │   ├── ChangeCursorRejectedError    a cursor or page token does not belong here
    │   ├── DirectOnlyError              a server was asked for what only works beside the storage
    │   ├── QuerySelectionError          no query, several, or another kind of query than asked for
    │   └── MixedMutationError           one mutation query both writes and deletes
    ├── InputFileError                   a file that the caller named cannot be read
    ├── NotFoundError                    what was named does not exist
    │   └── BranchNotFoundError
    ├── ConflictError                    *lost*: nothing happened, a repetition may succeed
    │   ├── ExpectedVersionMismatchError a touched table moved
    │   ├── BranchesExistError           other branches are in the way of a schema change
    │   ├── ReadSetConflictError         something only read moved
    │   └── RetryableCommitConflictError lock or catalog stayed busy
    │       └── LeaseLostError           another writer took the commit lock over
    ├── MergeConflictsError              two branches disagree; carries every conflict
    ├── ChangeDiffRefusedError           the changes of a commit cannot be told exactly
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

from omnigraph.errors.base import (
    AlreadyInitializedError,
    DamageError,
    Diagnostic,
    DriftError,
    EmbeddingError,
    HistoricalVersionReclaimedError,
    HistoryReclaimedError,
    InitializationClaimedError,
    InitializationCommittedError,
    OmniError,
    OutsideRootError,
    Severity,
    StorageError,
    StorageFailure,
    StorageFormatError,
    is_panic,
)
from omnigraph.errors.requests import (
    MAX_DIAGNOSTICS,
    BadRequestError,
    BlobChangedError,
    BlobIntegrityError,
    BlobRangeError,
    BranchExistsError,
    BranchNotFoundError,
    CompilerError,
    ConfigurationError,
    DirectOnlyError,
    ExternalBlobPolicyError,
    ExternalBlobSourceError,
    ForbiddenHostError,
    InputFileError,
    MethodNotAllowedError,
    MixedMutationError,
    NotFoundError,
    ParameterError,
    PolicyDeniedError,
    QueryCancelledError,
    QuerySelectionError,
    QueryTimeoutError,
    RemoteError,
    RequestTimeoutError,
    ResourceLimitError,
    ServerUnreachableError,
    TooManyRequestsError,
    TransportError,
    UnauthorizedError,
    UnexpectedAnswerError,
    UnsupportedMediaTypeError,
    without_credentials,
)
from omnigraph.errors.writes import (
    MAX_CONFLICTS,
    MAX_EXAMPLES,
    BadRecord,
    BranchesExistError,
    ChangeCursorRejectedError,
    ChangeDiffRefusedError,
    ChangeFeedGapError,
    ChangeSchemaBoundaryError,
    CommitHasNoParentError,
    ConflictError,
    ConflictKind,
    ExpectedVersionMismatchError,
    InternalError,
    KeyConflictError,
    LeaseLostError,
    LoadKeyConflictError,
    LoadRejectedError,
    LoadReport,
    MergeConflict,
    MergeConflictsError,
    PreconditionFailedError,
    ReadSetConflictError,
    RecoveryRequiredError,
    RetryableCommitConflictError,
    SchemaViolationsError,
    SparkError,
    UnsupportedSchemaError,
)

__all__ = [
    "MAX_CONFLICTS",
    "MAX_DIAGNOSTICS",
    "MAX_EXAMPLES",
    "AlreadyInitializedError",
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
    "InternalError",
    "KeyConflictError",
    "LeaseLostError",
    "LoadKeyConflictError",
    "LoadRejectedError",
    "LoadReport",
    "MergeConflict",
    "MergeConflictsError",
    "MethodNotAllowedError",
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
    "TooManyRequestsError",
    "TransportError",
    "UnauthorizedError",
    "UnexpectedAnswerError",
    "UnsupportedMediaTypeError",
    "UnsupportedSchemaError",
    "is_panic",
    "without_credentials",
]
