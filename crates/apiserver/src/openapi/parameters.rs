//! Query parameters: what they are called, hold and mean, and which operation takes which.

/// Name, JSON type and meaning.
pub type Parameter = (&'static str, &'static str, &'static str);

/// Of every operation.
pub const PRETTY: Parameter = ("pretty", "string", "If 'true', the answer is indented for people.");
const DRY_RUN: Parameter =
    ("dryRun", "string", "'All' goes through all stages of the request but keeps nothing.");
const FIELD_MANAGER: Parameter = (
    "fieldManager",
    "string",
    "Who makes the change, for metadata.managedFields; at most 128 printable characters.",
);
const FIELD_VALIDATION: Parameter = (
    "fieldValidation",
    "string",
    "What becomes of unknown and duplicate fields: 'Ignore' drops them, 'Warn' (the default) also warns, 'Strict' \
     refuses the request.",
);
const FORCE: Parameter = (
    "force",
    "boolean",
    "Apply only: take over fields that other managers own instead of answering a conflict.",
);

const FIELD_SELECTOR: Parameter = ("fieldSelector", "string", "Only objects whose fields match.");
const LABEL_SELECTOR: Parameter = ("labelSelector", "string", "Only objects whose labels match.");
const SHARD_SELECTOR: Parameter = ("shardSelector", "string", "Only objects of this share of the hash ring.");
const LIMIT: Parameter = (
    "limit",
    "integer",
    "At most this many objects; the rest is fetched with the continue token of the answer.",
);
const CONTINUE: Parameter = ("continue", "string", "The token of a previous answer: what comes after it.");
const RESOURCE_VERSION: Parameter =
    ("resourceVersion", "string", "Which version of the data may be served, or where a watch begins.");
const RESOURCE_VERSION_MATCH: Parameter =
    ("resourceVersionMatch", "string", "How resourceVersion is meant: 'Exact' or 'NotOlderThan'.");
const TIMEOUT: Parameter = ("timeoutSeconds", "integer", "How long the call may last.");
const SEND_INITIAL_EVENTS: Parameter = (
    "sendInitialEvents",
    "boolean",
    "Watches only: begin with all present objects, then a bookmark annotated k8s.io/initial-events-end.",
);
const BOOKMARKS: Parameter = ("allowWatchBookmarks", "boolean", "Watches only: BOOKMARK events are welcome.");
const WATCH: Parameter = ("watch", "boolean", "Stream changes as events instead of answering a list.");

const GRACE_PERIOD: Parameter =
    ("gracePeriodSeconds", "integer", "Seconds before the object is deleted; zero means at once.");
const ORPHAN_DEPENDENTS: Parameter =
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy. Whether dependents stay.");
const PROPAGATION: Parameter =
    ("propagationPolicy", "string", "What becomes of dependents: 'Orphan', 'Background' or 'Foreground'.");
const IGNORE_READ_ERROR: Parameter = (
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Delete the object even though it cannot be read from the store.",
);

/// Of create and update.
pub const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
/// Of patch.
pub const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
/// Of delete.
pub const DELETE: &[Parameter] = &[DRY_RUN, GRACE_PERIOD, IGNORE_READ_ERROR, ORPHAN_DEPENDENTS, PROPAGATION];
/// Of list and watch.
pub const LIST: &[Parameter] = &[
    BOOKMARKS,
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    SHARD_SELECTOR,
    TIMEOUT,
    WATCH,
];
/// Of deletecollection.
pub const DELETE_COLLECTION: &[Parameter] = &[
    CONTINUE,
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE_PERIOD,
    IGNORE_READ_ERROR,
    LABEL_SELECTOR,
    LIMIT,
    ORPHAN_DEPENDENTS,
    PROPAGATION,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    SHARD_SELECTOR,
    TIMEOUT,
];

const CONTAINER: Parameter =
    ("container", "string", "Which container; may be left out when there is only one.");
const STDIN: Parameter = ("stdin", "boolean", "Pass on the standard input.");
const STDOUT: Parameter = ("stdout", "boolean", "Pass on the standard output.");
const STDERR: Parameter = ("stderr", "boolean", "Pass on the standard error.");
const TTY: Parameter = ("tty", "boolean", "Use a terminal.");
const LOG: &[Parameter] = &[
    CONTAINER,
    ("follow", "boolean", "Go on with the log as it grows."),
    ("insecureSkipTLSVerifyBackend", "boolean", "Do not check the certificate of the kubelet."),
    ("limitBytes", "integer", "At most this many bytes."),
    ("previous", "boolean", "The log of the container before its last restart."),
    ("sinceSeconds", "integer", "Only the last seconds."),
    ("stream", "string", "Which output: 'All', 'Stdout' or 'Stderr'."),
    ("tailLines", "integer", "Only the last lines."),
    ("timestamps", "boolean", "Every line begins with its time."),
];
const EXEC: &[Parameter] = &[
    ("command", "string", "The command and its arguments, one each."),
    CONTAINER,
    STDERR,
    STDIN,
    STDOUT,
    TTY,
];

/// What only this subresource takes.
pub fn of_subresource(name: &str) -> &'static [Parameter] {
    match name {
        "log" => LOG,
        "exec" => EXEC,
        "attach" => &[CONTAINER, STDERR, STDIN, STDOUT, TTY],
        "portforward" => &[("ports", "integer", "The ports to forward.")],
        "proxy" => &[("path", "string", "The path to ask for.")],
        _ => &[],
    }
}
