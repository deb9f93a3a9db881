"""The variables that say which object store is asked, who asks, and how: obstore and Lance read them by themselves.

They are declared here for the page of settings, and for the parts of this package that look at some of them.
"""

from __future__ import annotations

import os

from omnigraph.core.env_settings import Variable

_YES = "`true`, `false`"
_TIME = "a time, such as `10s`"

# ---- Where the store is


ENDPOINT_S3 = Variable("AWS_ENDPOINT_URL_S3", "The address of a store that is not AWS.", values="an address")
ENDPOINT_URL = Variable(
    "AWS_ENDPOINT_URL", "The address of a store that is not AWS; `AWS_ENDPOINT_URL_S3` wins.", values="an address"
)
ENDPOINT = Variable("AWS_ENDPOINT", "The address of a store that is not AWS; the other two win.", values="an address")
REGION = Variable("AWS_REGION", "The region of the bucket.", default="`us-east-1`", values="a region")
DEFAULT_REGION = Variable("AWS_DEFAULT_REGION", "The region where `AWS_REGION` is not set.", values="a region")

#: The variables that name an endpoint, the first one that is set counts.
ENDPOINTS = (ENDPOINT_S3, ENDPOINT_URL, ENDPOINT)


def store_endpoint() -> str | None:
    """The address of the store; None for the S3 of AWS."""
    return next((value for name in ENDPOINTS if (value := os.environ.get(name))), None)


def store_region() -> str | None:
    """The region of the bucket, if it is said."""
    return os.environ.get(REGION) or os.environ.get(DEFAULT_REGION)


# ---- How it is asked


#: Options of connections that obstore reads from these variables, by their names there.
CONNECTION = {
    "allow_http": Variable("AWS_ALLOW_HTTP", "Allows an endpoint that begins with `http://`.", values=_YES),
    "allow_invalid_certificates": Variable(
        "AWS_ALLOW_INVALID_CERTIFICATES", "Accepts any certificate; for tests only.", values=_YES
    ),
    "http1_only": Variable("AWS_HTTP1_ONLY", "Asks with HTTP/1 only.", default="`true`", values=_YES),
    "http2_only": Variable("AWS_HTTP2_ONLY", "Asks with HTTP/2 only.", values=_YES),
    "http2_keep_alive_interval": Variable(
        "AWS_HTTP2_KEEP_ALIVE_INTERVAL", "The time between pings of a connection of HTTP/2.", values=_TIME
    ),
    "http2_keep_alive_timeout": Variable(
        "AWS_HTTP2_KEEP_ALIVE_TIMEOUT", "The time for the answer to a ping of HTTP/2.", values=_TIME
    ),
    "http2_keep_alive_while_idle": Variable(
        "AWS_HTTP2_KEEP_ALIVE_WHILE_IDLE", "Also pings connections of HTTP/2 that nothing uses.", values=_YES
    ),
    "pool_idle_timeout": Variable(
        "AWS_POOL_IDLE_TIMEOUT", "The time for which a connection is kept that nothing uses.", values=_TIME
    ),
    "pool_max_idle_per_host": Variable(
        "AWS_POOL_MAX_IDLE_PER_HOST", "The connections that are kept per host.", values="0 or more"
    ),
    "proxy_url": Variable("AWS_PROXY_URL", "A proxy for requests to the store.", values="an address"),
    "proxy_ca_certificate": Variable(
        "AWS_PROXY_CA_CERTIFICATE", "The certificate that signs the one of the proxy.", values="a text in PEM"
    ),
    "proxy_excludes": Variable(
        "AWS_PROXY_EXCLUDES", "Hosts that are asked without the proxy.", values="names with commas between them"
    ),
    "randomize_addresses": Variable(
        "AWS_RANDOMIZE_ADDRESSES", "Tries the addresses of a host in any order.", default="`true`", values=_YES
    ),
    "user_agent": Variable("AWS_USER_AGENT", "The name under which requests are sent.", values="a text"),
}
STORE_TIMEOUT = Variable(
    "AWS_TIMEOUT",
    "The time limit of one request. Set `OMNIGRAPH_STORAGE_TIMEOUT` instead: this one wins where both are set.",
    values=_TIME,
)
STORE_CONNECT_TIMEOUT = Variable(
    "AWS_CONNECT_TIMEOUT",
    "The time for a connection. Set `OMNIGRAPH_STORAGE_CONNECT_TIMEOUT` instead: this one wins where both are set.",
    values=_TIME,
)

# ---- Who asks


ACCESS_KEY_ID = Variable(
    "AWS_ACCESS_KEY_ID", "The name of an access key. Without it the role of the machine or pod is used.", values="a key"
)
SECRET_ACCESS_KEY = Variable("AWS_SECRET_ACCESS_KEY", "The secret of the access key.", values="a secret")
SESSION_TOKEN = Variable("AWS_SESSION_TOKEN", "The third part of temporary credentials.", values="a token")

#: What nothing in this package looks at.
PASSED_ON = (
    Variable(
        "AWS_WEB_IDENTITY_TOKEN_FILE", "The token of a role, as Kubernetes mounts it into a pod.", values="a file"
    ),
    Variable("AWS_ROLE_ARN", "The role that the token of `AWS_WEB_IDENTITY_TOKEN_FILE` stands for.", values="a role"),
    Variable("AWS_ROLE_SESSION_NAME", "The name of the session of `AWS_ROLE_ARN`.", values="a name"),
    Variable("AWS_STS_ENDPOINT", "The service that gives credentials for `AWS_ROLE_ARN`.", values="an address"),
    Variable(
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "Where a container of ECS gets its credentials.", values="a path"
    ),
    Variable(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI", "Where a container of EKS gets its credentials.", values="an address"
    ),
    Variable(
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "The token with which a container asks for its credentials.",
        values="a file",
    ),
    Variable(
        "AWS_METADATA_ENDPOINT",
        "Where a machine of EC2 gets its credentials.",
        default="`http://169.254.169.254`",
        values="an address",
    ),
    Variable(
        "AWS_IMDSV1_FALLBACK",
        "Asks a machine of EC2 for credentials in the older way if the newer one fails.",
        values=_YES,
    ),
    Variable("AWS_SKIP_SIGNATURE", "Sends requests without credentials, to public buckets.", values=_YES),
    Variable(
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
        "Puts the bucket into the name of the host; an endpoint then holds the bucket too.",
        values=_YES,
    ),
    Variable("AWS_S3_EXPRESS", "The bucket is one of S3 Express One Zone.", values=_YES),
    Variable("AWS_REQUEST_PAYER", "Pays for requests to buckets whose owner does not.", values="`requester`, `true`"),
    Variable("AWS_UNSIGNED_PAYLOAD", "Signs requests without a checksum of their bodies.", values=_YES),
    Variable("AWS_CHECKSUM_ALGORITHM", "The checksum that uploads carry.", values="`SHA256`"),
    Variable(
        "AWS_SERVER_SIDE_ENCRYPTION", "How the store encrypts.", values="`AES256`, `aws:kms`, `aws:kms:dsse`, `sse-c`"
    ),
    Variable("AWS_SSE_KMS_KEY_ID", "The key of KMS for `aws:kms` and `aws:kms:dsse`.", values="a key"),
    Variable("AWS_SSE_BUCKET_KEY_ENABLED", "Uses the key of the bucket with KMS.", values=_YES),
    Variable("AWS_SSE_CUSTOMER_KEY_BASE64", "The key for `sse-c`.", values="256 bits in base64"),
    Variable("AWS_DISABLE_TAGGING", "Writes no tags, for stores without them.", values=_YES),
    Variable("AWS_DISABLE_BULK_DELETE", "Deletes objects one by one, for stores that cannot delete many.", values=_YES),
    Variable(
        "AWS_CONDITIONAL_PUT",
        "How the store refuses to write over an object. Writers exclude each other by it: leave it as it is.",
        default="`etag`",
        values="`etag`",
    ),
)
