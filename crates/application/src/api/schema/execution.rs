//! What runs in the container.

use serde_json::Value;

use super::{at, flag, integer, list, map_list, object, pattern, quantity, text};

/// The most variables of the environment.
const VARIABLES: u32 = 200;

pub(super) fn execution() -> Vec<(&'static str, Value)> {
    vec![
        ("command", list("The program, instead of the image's entry point.", 256, text("A word.", 32_768))),
        ("args", list("Arguments of the program.", 256, text("A word.", 32_768))),
        (
            "environment",
            map_list(
                "Environment variables. A value may name earlier ones as in $(NAME).",
                &["name"],
                VARIABLES,
                variable(),
            ),
        ),
        (
            "environmentFrom",
            list("Objects whose keys all become environment variables.", 32, {
                let reference = |about: &str| {
                    object(
                        about,
                        &["name"],
                        vec![
                            ("name", text("Its name.", 253)),
                            ("optional", flag("Whether pods start without it.")),
                        ],
                    )
                };
                at(
                    "spec/environmentFrom/[]",
                    object(
                        "A source of variables.",
                        &[],
                        vec![
                            ("prefix", text("Put before each name.", 128)),
                            ("configMapRef", reference("A ConfigMap.")),
                            ("secretRef", reference("A Secret.")),
                        ],
                    ),
                )
            }),
        ),
        (
            "configFiles",
            map_list(
                "Files with settings. Pods are replaced when one changes.",
                &["path"],
                32,
                object(
                    "A file.",
                    &["path"],
                    vec![
                        ("path", pattern(text("Where it lies in the container.", 512), "^/.*[^/]$")),
                        ("content", text("What it says.", 262_144)),
                    ],
                ),
            ),
        ),
        (
            "terminationGracePeriodSeconds",
            integer("How long a pod has to end before it is killed.", 0, 86_400),
        ),
    ]
}

fn variable() -> Value {
    let key_of = |about: &str| {
        object(
            about,
            &["name", "key"],
            vec![
                ("name", text("Name of the object.", 253)),
                ("key", text("Which key of it.", 253)),
                ("optional", flag("Whether pods start without it.")),
            ],
        )
    };
    at(
        "spec/environment/[]",
        object(
            "A variable.",
            &["name"],
            vec![
                ("name", pattern(text("Its name.", 253), "^[^=]+$")),
                ("value", text("Its value.", 32_768)),
                (
                    "valueFrom",
                    at(
                        "spec/environment/[]/valueFrom",
                        object(
                            "Where its value comes from.",
                            &[],
                            vec![
                                ("configMapKeyRef", key_of("From a ConfigMap.")),
                                ("secretKeyRef", key_of("From a Secret.")),
                                (
                                    "fieldRef",
                                    object(
                                        "From the pod itself.",
                                        &["fieldPath"],
                                        vec![
                                            ("apiVersion", text("Version of the path.", 64)),
                                            ("fieldPath", text("Such as metadata.name.", 512)),
                                        ],
                                    ),
                                ),
                                (
                                    "resourceFieldRef",
                                    object(
                                        "From the container's resources.",
                                        &["resource"],
                                        vec![
                                            ("containerName", text("Which container.", 63)),
                                            ("resource", text("Such as limits.cpu.", 253)),
                                            ("divisor", quantity("The unit.")),
                                        ],
                                    ),
                                ),
                            ],
                        ),
                    ),
                ),
            ],
        ),
    )
}
