//! Probes, volumes and rights.

use serde_json::{Value, json};

use super::{
    at, choice, default, flag, integer, list, number_or_text, object, pattern, port, quantity, text,
};

pub(super) fn claim() -> Value {
    let mut modes = list(
        "Who may use it at once.",
        4,
        choice("A mode.", &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]),
    );
    modes["minItems"] = json!(1);
    modes["x-kubernetes-list-type"] = json!("set");
    at(
        "spec/storage/persistentVolumeClaims/[]",
        object(
            "A volume that stays.",
            &["name", "size"],
            vec![
                (
                    "name",
                    pattern(
                        text("The name. The claim is called APPLICATION-NAME.", 63),
                        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                    ),
                ),
                ("size", quantity("How large, such as 10Gi. It can grow, not shrink.")),
                ("accessModes", default(modes, json!(["ReadWriteOnce"]))),
                (
                    "storageClassName",
                    text("From which class; the cluster's default if left out, none if empty.", 253),
                ),
                (
                    "mountPath",
                    pattern(
                        text("Where it is in the container; /data/NAME unless told otherwise.", 512),
                        "^/",
                    ),
                ),
                ("subPath", pattern(text("Which folder of the volume.", 512), "^[^/]")),
                ("readOnly", flag("Only for reading.")),
                (
                    "allowShared",
                    default(
                        flag(
                            "All pods may share this volume although it can be used on one node only: then they all have to run on that node.",
                        ),
                        json!(false),
                    ),
                ),
                (
                    "retention",
                    default(
                        choice(
                            "What happens to the volume when the application or this entry is deleted: it is kept, and taken up again by a new application of the same name, or deleted with what is on it.",
                            &["Retain", "Delete"],
                        ),
                        json!("Retain"),
                    ),
                ),
            ],
        ),
    )
}

pub(super) fn probe(about: &str) -> Value {
    let mut name = number_or_text("Number or name; the application's first port unless told otherwise.");
    name["maxLength"] = json!(15);
    at(
        "probe",
        object(
            about,
            &[],
            vec![
                (
                    "httpGet",
                    object(
                        "Asks by HTTP. Answers from 200 to 399 are good.",
                        &[],
                        vec![
                            ("path", pattern(text("What is asked for.", 1024), "^/")),
                            ("port", name.clone()),
                            ("scheme", choice("The scheme; HTTP unless told otherwise.", &["HTTP", "HTTPS"])),
                            (
                                "httpHeaders",
                                list(
                                    "Headers of the request.",
                                    32,
                                    object(
                                        "A header.",
                                        &["name", "value"],
                                        vec![
                                            ("name", text("Its name.", 256)),
                                            ("value", text("Its value.", 4096)),
                                        ],
                                    ),
                                ),
                            ),
                        ],
                    ),
                ),
                ("tcpSocket", object("Opens a connection.", &[], vec![("port", name)])),
                (
                    "exec",
                    object(
                        "Runs a command in the container. 0 is good.",
                        &["command"],
                        vec![("command", list("The command and its arguments.", 64, text("A word.", 4096)))],
                    ),
                ),
                (
                    "grpc",
                    object(
                        "Asks by gRPC's health protocol.",
                        &["port"],
                        vec![
                            ("port", port("The number.")),
                            ("service", text("Which service is asked about.", 253)),
                        ],
                    ),
                ),
                ("initialDelaySeconds", integer("Not earlier than this after the start.", 0, 86_400)),
                ("periodSeconds", integer("How often; 10 unless told otherwise.", 1, 86_400)),
                (
                    "timeoutSeconds",
                    integer("How long an answer may take; 1 unless told otherwise.", 1, 86_400),
                ),
                (
                    "successThreshold",
                    integer("So many good answers in a row are needed after a bad one.", 1, 1000),
                ),
                (
                    "failureThreshold",
                    integer("So many bad answers in a row are needed; 3 unless told otherwise.", 1, 1000),
                ),
            ],
        ),
    )
}

pub(super) fn security_context() -> Value {
    let id = |about: &str| json!({"type": "integer", "format": "int64", "minimum": 0, "maximum": 2_147_483_647, "description": about});
    object(
        "User, group and rights, of pod and container in one.",
        &[],
        vec![
            ("runAsNonRoot", flag("Refuse to run as root.")),
            ("runAsUser", id("The user's number.")),
            ("runAsGroup", id("The group's number.")),
            ("fsGroup", id("The group that volumes belong to.")),
            ("supplementalGroups", list("More groups.", 32, id("A group's number."))),
            (
                "seccompProfile",
                object(
                    "Which system calls are allowed.",
                    &["type"],
                    vec![
                        ("type", choice("Which profile.", &["RuntimeDefault", "Unconfined", "Localhost"])),
                        ("localhostProfile", text("The file on the node, for Localhost.", 512)),
                    ],
                ),
            ),
            ("allowPrivilegeEscalation", flag("Whether a process may gain more rights than its parent has.")),
            ("readOnlyRootFilesystem", flag("Whether the image's files cannot be changed.")),
            ("privileged", flag("Whether it has all rights of the node.")),
            (
                "capabilities",
                object(
                    "Single rights.",
                    &[],
                    vec![
                        ("add", list("Rights that are given.", 64, text("A right.", 64))),
                        ("drop", list("Rights that are taken away.", 64, text("A right.", 64))),
                    ],
                ),
            ),
        ],
    )
}
